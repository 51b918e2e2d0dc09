"""The words that the reverser knows: short, common, and none twice."""

WORDS = """
acorn actor album amber angel ankle apple april apron arch arm army arrow ash atlas attic aunt autumn
axe baby badge bag bake ball band bank barn basin basket bath beach bead beam bean bear bed bee beet
bell belt bench berry bike bird blue boat bone book boot bottle bow bowl box branch brass bread brick
bridge brook broom brush bucket bud bull bus bush butter button cabin cake calf camel camp candle cap
car card carpet cart castle cat cave cedar chair chalk cheese cherry chest chin circle city clay cliff
clock cloth cloud clover coal coast coat coin comb cook copper coral cord cork corn cotton cow crab
crane cream creek crow crown cup curtain dance dawn deer desk dew dish doll door dove dream dress drum
duck dune dust eagle ear earth east echo edge egg elbow elk elm ember engine evening eye face fair farm
fawn feather fence fern field fig finger fir fire fish flag flame flax floor flour flower flute foam fog
forest fork fox frame frog fruit game garden gate ghost gift glass globe glove goat gold goose grain
grape grass green grove hair hall hammer hand harbor harp hat hawk hay heart hedge heron hill hinge hive
holly honey hood hoof hook horn horse house ice ink iris iron island ivory ivy jacket jam jar jewel
joy judge juice jump kettle key king kite knee knife knot lace ladder lake lamb lamp lane lantern lark
lawn leaf lemon letter light lily lime linen lion lip lock log loom lotus lunch lynx maid map maple
marble market mask meadow melon milk mill mint mirror mist mole moon moss moth mouse mud music nail
neck needle nest net night north nose nut oak oar oat ocean olive onion opal orange otter owl ox page
paint palm pan paper park path pea peach pear pearl pen pepper piano pier pig pine pink pipe plank plum
pocket pond pony poppy port pot queen quill quilt rabbit rain raven reed ribbon rice ring river road
robin rock roof room root rope rose ruby rug rye sail salt sand school sea seed shed sheep shell ship
shirt shoe shore silk silver sky sled smoke snail snow soap sock song soup spade spark spoon spring
square stable star steam stem step stone storm stove straw stream street sugar sun swan table tail tea
tent thread thumb tide tiger toad tower town train tree trout tulip valley vase velvet vine violet wagon
wall walnut water wave wax weaver well west whale wheat wheel willow wind window wing winter wolf wood
wool wren yard yarn zebra
""".split()

assert len(set(WORDS)) == len(WORDS)
