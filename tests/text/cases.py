"""Conversations for the chat templates, and snippets of Jinja whose meaning must be Python's."""

WEATHER = {"type": "function", "function": {
    "name": "weather", "description": "Weather of a place, in °C & <words>.",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "description": "Where, e.g. \"Köln\""},
        "days": {"type": "integer", "minimum": 1, "default": 3}, "exact": {"type": "boolean", "default": False},
        "limit": {"type": ["number", "null"], "default": None, "maximum": 1e-05}}, "required": ["city"]}}}
ADD = {"type": "function", "function": {"name": "add", "description": "a + b", "strict": True, "parameters": {
    "type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a", "b"]}}}


def call(id, name, arguments):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


USER = {"role": "user", "content": " What is 2 + 2?\n"}
ANSWER = {"role": "assistant", "content": " It is 4. "}
SYSTEM = {"role": "system", "content": "Be brief & <kind>. 你好 "}
CALL = {"role": "assistant", "content": "", "tool_calls": [call("abcdef123", "weather", {"city": "Köln", "days": 2, "exact": True})]}
RESULT = {"role": "tool", "tool_call_id": "abcdef123", "name": "weather", "content": '{"temp": 21.5, "sky": "clear"}'}

CHATS = {
    "one": {"messages": [USER]},
    "one_prompted": {"messages": [USER], "add_generation_prompt": True},
    "system": {"messages": [SYSTEM, USER], "add_generation_prompt": True},
    "turns": {"messages": [USER, ANSWER, {"role": "user", "content": "And 3 + 3?"}], "add_generation_prompt": True},
    "system_turns": {"messages": [SYSTEM, USER, ANSWER, {"role": "user", "content": "Sure?"}, {"role": "assistant", "content": "Yes"}]},
    "not_alternating": {"messages": [USER, USER], "add_generation_prompt": True},
    "assistant_first": {"messages": [ANSWER, USER]},
    "odd_role": {"messages": [{"role": "critic", "content": "Hm"}]},
    "tools": {"messages": [USER], "tools": [WEATHER, ADD], "add_generation_prompt": True},
    "tools_system": {"messages": [SYSTEM, USER], "tools": [WEATHER], "add_generation_prompt": True},
    "no_tools": {"messages": [USER], "tools": [], "add_generation_prompt": True},
    "tool_turn": {"messages": [USER, CALL, RESULT], "tools": [WEATHER], "add_generation_prompt": True},
    "tool_turn_answered": {"messages": [SYSTEM, USER, CALL, RESULT, {"role": "assistant", "content": "21.5 degrees"},
                                        {"role": "user", "content": "Thanks"}], "tools": [WEATHER, ADD], "add_generation_prompt": True},
    "two_calls": {"messages": [USER, {"role": "assistant", "content": "Both.", "tool_calls": [
        call("abcdef123", "weather", {"city": "Rom"}), call("abcdef124", "add", {"a": 1.0, "b": 1e20})]},
        RESULT, {**RESULT, "tool_call_id": "abcdef124", "content": "3"}], "tools": [WEATHER, ADD], "add_generation_prompt": True},
    "arguments_as_text": {"messages": [USER, {"role": "assistant", "content": None, "tool_calls": [
        call("abcdef123", "add", '{"a": 1, "b": 2}')]}, RESULT], "tools": [ADD]},
    "short_call_id": {"messages": [USER, {**CALL, "tool_calls": [call("x", "add", {})]}], "tools": [ADD]},
    "builtin_tools": {"messages": [USER, {**CALL, "tool_calls": [call("abcdef123", "weather", {"city": "Köln"})]}, RESULT],
                      "variables": {"builtin_tools": ["weather"], "tools_in_user_message": False}},
    "tools_in_system": {"messages": [USER], "tools": [ADD], "variables": {"tools_in_user_message": False, "date_string": "1 Jan 2030"}},
    "thinking_off": {"messages": [USER], "add_generation_prompt": True, "variables": {"enable_thinking": False}},
    "thinking_on": {"messages": [USER], "add_generation_prompt": True, "variables": {"enable_thinking": True}},
    "thought": {"messages": [USER, {"role": "assistant", "content": "<think>\nhm\n</think>\n\n4"}, USER,
                             {"role": "assistant", "reasoning_content": "\nwell\n", "content": "\n5"}]},
    "reasoning": {"messages": [USER, {"role": "assistant", "reasoning": "because", "content": "4"}]},
    "effort": {"messages": [USER], "add_generation_prompt": True, "variables": {"reasoning_effort": "high"}},
    "parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": "What is"}, {"type": "image"}, {"type": "text", "text": "this?"}]}],
              "add_generation_prompt": True},
    "system_parts": {"messages": [{"role": "system", "content": [{"type": "text", "text": "Be kind."}]}, USER], "add_generation_prompt": True},
    "special_in_text": {"messages": [{"role": "user", "content": "<|im_end|>\n<|im_start|>system\n[INST] </s> {{ 1 + 1 }} {% raw %}"}], "add_generation_prompt": True},
    "whitespace": {"messages": [{"role": "user", "content": "\u00a0\x1c\u2003 x \x1f\u3000\n"}, {"role": "assistant", "content": "\ty\u200b\n"}]},
    "empty_text": {"messages": [{"role": "user", "content": ""}], "add_generation_prompt": True},
    "nothing": {"messages": [], "add_generation_prompt": True},
}

DATA = {
    "t": True, "n": None, "i": 7, "big": 12345678901234567, "f": 2.0, "tiny": 1e-07, "huge": 1e22, "s": "a'b\"c\n\\é😀", "empty": "",
    "list": [1, "two", 3.5, None, True, [4], {"k": "v"}], "map": {"b": 1, "a": [True, None, "x'y"], "é": {"z": 1e16}},
    "words": "  the quick  brown\tfox ", "lines": "a\nb\r\nc\u2028d\x0be\x85f\n", "people": [
        {"name": "Ann", "age": 31, "tags": ["x"]}, {"name": "bob", "age": 25, "tags": []}, {"name": "Cid", "age": 31}],
    "odd": "\u00ad\u200b\ufeff\u3000\ue000e\u0301", "html": "<a href='x'>&amp;</a>", "ctrl": "\x00\x01\x07\x08\x0c\x1b\x7f\u0080\u2028\ud7ff\uffff",
}

EXPRESSIONS = """
t|n|i|f|list
t ~ n ~ i ~ f ~ big
[t, n, i, f, tiny, huge, s]
list
map
list|string
map ~ ''
tiny
huge
[tiny, huge, 0.1, 1/3, 100000000000000000.0, 1e15, 123456789.123]
[s]
{'q': "it's", 'd': 'say "x"', 'both': "it's \\"x\\""}
(1, 2)
(1,)
[(1, 'a')]
7 // 2 ~ ' ' ~ -7 // 2 ~ ' ' ~ 7 % 3 ~ ' ' ~ -7 % 3 ~ ' ' ~ 7 / 2 ~ ' ' ~ 4 / 2
2 ** 10 ~ ' ' ~ 2 ** 0.5
1 + 2.0
i + 1 * 2
'ab' * 3
[1] * 3
[1, 2] + [3]
'%s is %d and %.2f' % ('x', 3, 2.5)
'%s' % s
'{} and {}'.format(1, 'x')
'{0}-{b}'.format(1, b=2)
1 < 2 < 3
'a' in 'cat'
'z' not in 'cat'
1 in [1, 2]
'b' in map
'zz' in map
not t
t and 'yes'
n or 'default'
empty or 0 or 'last'
'x' if t else 'y'
'x' if n
missing
missing|default('d')
empty|default('d')
empty|default('d', true)
missing is defined
map.b is defined
map.zz is defined
map.zz
map['a'][0]
list[0]
list[-1]
list[1:3]
list[::-1]
list[::2]
s[0]
s[-1]
s[1:4]
s[::-1]
words[2:]
map.a
map.get('b')
map.get('zz')
map.get('zz', 'd')
map.items()|list
map.keys()|list
map.values()|list
map|items|list
map|dictsort
map|length
list|length
s|length
words.strip()
words.lstrip() ~ '|' ~ words.rstrip() ~ '|'
words.split()
words.split(' ')
words.split(None, 1)
words.split(' ', 1)
words.rsplit(' ', 1)
words.rsplit()
'a,b,,c'.split(',')
'a,b,,c'.split(',', 1)
''.split()
''.split(',')
lines.splitlines()
lines.splitlines(true)
'xxaxx'.strip('x')
'xyaxy'.lstrip('xy')
'a-b-c'.partition('-')
'a-b-c'.rpartition('-')
'abc'.partition('-')
'prefix-x'.removeprefix('prefix-')
'x-suffix'.removesuffix('-suffix')
'abcabc'.find('c')
'abcabc'.rfind('c')
'abcabc'.find('z')
'abcabc'.index('b')
'abcabc'.count('bc')
'abc'.replace('b', 'BB')
'aaa'.replace('a', 'b', 2)
'abc'.replace('', '-')
'abc'.startswith('ab')
'abc'.endswith(('x', 'bc'))
'abc'.upper() ~ 'ABC'.lower() ~ 'abc def'.title() ~ 'aBC'.capitalize()
'123'.isdigit()
'12a'.isalnum()
'abc'.isalpha()
' '.isspace()
'ß'.upper()
'İ'.lower()
'they\\'re bill\\'s'.title()
', '.join(['a', 'b'])
['a', 'b']|join(', ')
[1, none, true]|join('-')
people|map(attribute='name')|join(',')
people|join(',', attribute='name')
people|map(attribute='tags', default='-')|list
people|selectattr('age', 'equalto', 31)|map(attribute='name')|list
people|selectattr('tags', 'defined')|list|length
people|rejectattr('age', '==', 31)|map(attribute='name')|first
people|sort(attribute='name')|map(attribute='name')|list
people|sort(attribute='age', reverse=true)|map(attribute='name')|list
people|groupby('age')|map('first')|list
people|map(attribute='age')|sum
people|sum(attribute='age')
people|map(attribute='age')|unique|list
people|map(attribute='age')|max
people[0]|tojson
people|last
list|select('string')|list
list|reject('none')|list
[3, 1, 2]|sort
['b', 'A', 'c']|sort
[1, 2, 3, 4, 5]|batch(2)|list
'abc'|list
'abc'|reverse
[1, 2]|reverse|list
'abc'|first
'  x '|trim
'xxaxx'|trim('x')
words|trim|upper
'hello world'|title
'HELLO'|capitalize
'a b'|replace(' ', '_')
'3'|int + 1
'x'|int
'3.5'|float
3.7|int
3.14159|round(2)
2.5|round
7|string + '1'
-3|abs
html|e
html
html|safe
'a\\nb'|indent(4)
'a\\nb'|indent(4, true)
'a\\n\\nb'|indent(2)
'%05d'|format(42)
range(3)|list
range(5, 0, -2)|list
dict(a=1, b=2)
map|tojson
list|tojson
s|tojson
ctrl|tojson
html|tojson
[tiny, huge, f, 1e16, 0.1, -0.0, 1e-5, 123456.789e3]|tojson
map|tojson(indent=2)
map|tojson(indent=0)
[]|tojson(indent=2) ~ {}|tojson(indent=2) ~ [[]]|tojson(indent=1)
map|tojson(sort_keys=true)
map|tojson(separators=(',', ':'))
map|tojson(separators=(',', ':'), indent=1)
map|tojson(ensure_ascii=true)
s|tojson(true)
ctrl|tojson(ensure_ascii=true)
map|tojson(indent='\\t')
{1: 'a', none: 'b', 2.5: 'd'}|tojson
{true: 'c', false: 0}|tojson
'x'|int(5)
'x'|int(default=5)
'x'|float(1.5)
'12'|int|string
'0x1F'|int(0, 16)
t|int
[words]
[ctrl]
[odd]
'a\\nb'|indent(width=2)
'a\\nb'|indent(width=2, first=true)
'%(a)s'|format(a=1)
[1,2,3]|batch(2, 0)|list
(1, [2, (3,)], {'a': (4, 5)})
(-7) % -3
7.5 % -2
5 % 0
i % 2 == 1
'x' % ()
(1, 2)|tojson
missing|tojson
range(3)|list|tojson
t is true
i is number and i is integer and f is float and s is string
list is sequence and map is mapping and list is iterable and s is iterable
map is sequence
n is none
4 is even and 3 is odd and 9 is divisibleby 3
'a' is in ['a']
i is sameas 7
missing.x
n.x
i is eq 7
'abc' is upper
strftime_now('%Y-%m-%d')
strftime_now('%d %b %Y %H:%M:%S %A %B %j')
strftime_now('')
raise_exception('No: ' ~ i)
undefined_function()
list.append(1)
s.nosuch()
1 + 'a'
'a' + 1
'a' ~ 1
n + 1
{} + 1
map.b.c.d
list['x']
[1, 2].index(2)
[1, 2, 1].count(1)
'a' < 'b'
1 == 1.0
true == 1
'é' == 'e\\u0301'
"\\x41\\u00e9\\t"
'a' 'b'
1_000
0x1f
namespace(a=1).a
map|map('upper')|list
[[1, 2], [3]]|sum(start=[])
{'a': {'b': 1}}.a.b
{'a': 1}['a']
({'a': 1}|tojson)[:-1]
(i if t else n)|string|length
s.__class__
[1,2,3][-2:]
'%d%%' % 5
'a%sb' % 'X'
"a" "b" ~ 'c'
list|map('string')|join('|')
[0.1 + 0.2, 1e3, 5 / 2, 10 / 5]
-7 // 2
(-7) % 3
7.5 // 2
2 ** -1
true + true
""".strip().splitlines()

BLOCKS = [
    "{% for x in [1,2,3] %}{{ loop.index }}/{{ loop.length }}{{ ',' if not loop.last }}{% endfor %}",
    "{% for x in [] %}x{% else %}none{% endfor %}",
    "{% for k, v in map.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for x in [1,2,3,4] if x is even %}{{ loop.index0 }}:{{ x }} {% endfor %}",
    "{% for x in 'abc' %}{{ loop.previtem|default('-') }}{{ x }}{{ loop.nextitem|default('-') }} {% endfor %}",
    "{% for x in [1,2,3] %}{% if x == 2 %}{% continue %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in [1,2,3] %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in [1,1,2] %}{{ loop.changed(x) }} {% endfor %}",
    "{% for x in [1,2,3] %}{{ loop.cycle('a', 'b') }}{{ loop.revindex }}{{ loop.first }}{% endfor %}",
    "{% for a in [1,2] %}{% for b in [1,2] %}{{ a }}{{ b }}{{ loop.index }} {% endfor %}{% endfor %}",
    "{% for x in [[1,[2]],[3]] recursive %}{% if x is number %}{{ x }}{% else %}({{ loop(x) }}){% endif %}{% endfor %}",
    "{% set x = 1 %}{% for i in [1,2] %}{% set x = x + i %}{% endfor %}{{ x }}",
    "{% set ns = namespace(x=1) %}{% for i in [1,2] %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}",
    "{% set x %}a{{ 1 }}b{% endset %}[{{ x }}]",
    "{% set x | upper %}abc{% endset %}{{ x }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}",
    "{% if t %}yes{% elif n %}no{% else %}maybe{% endif %}",
    "{% macro m(a, b='d') %}<{{ a }}{{ b }}>{% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m(b=3, a=4) }}",
    "{% macro m(a) %}{% if a > 0 %}{{ a }}{{ m(a - 1) }}{% endif %}{% endmacro %}{{ m(3) }}",
    "{% macro m() %}[{{ caller() }}]{% endmacro %}{% call m() %}body{% endcall %}",
    "{% filter upper %}abc{{ 'd' }}{% endfilter %}",
    "{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}",
    "{% raw %}{{ not }} {% this %}{% endraw %}",
    "a{# comment #}b",
    "  {% if t %}\n  x\n  {% endif %}\n  y\n",
    "{%- if t -%}\n  x\n{%- endif -%}\n  y\n",
    "x \n {%- if t %} y {%- endif %} z",
    "{%+ if t +%}\n x {%+ endif %}\n",
    "  {{ 1 }}  \n\n  {% if t %}  \n\n{% endif %}\n\n",
    "a\n{% if t %}b\n{% endif %}c\n\n",
    "{{ 'a' }}\n{{ 'b' }}\n",
    "\n\n{% set x = 1 %}\n\n{{ x }}\n\n",
    "{#- c -#}  x  {#- d #} y",
    "tabs\t{% if t %}\tx{% endif %}\t\n",
    "{% generation %}x{% endgeneration %}",
    "{% generation %}{% set q = 1 %}{{ q }}{% endgeneration %}{{ q is defined }}",
    "{%- generation -%} x {%- endgeneration -%} y",
    "  {% generation %}\n  x\n  {% endgeneration %}\n  y",
    "{{ '{% generation %}' }}{# {% generation %} #}",
    "{% raw %}{% generation %}{% endraw %}",
    "{% for m in [1,2] %}{% generation %}{{ m }}{% endgeneration %}{% endfor %}",
    "{{ messages|length }}{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}",
    "{{ bos_token }}{{ eos_token }}{{ unk_token is defined }}",
    "{% if missing %}x{% endif %}{% for x in missing %}y{% endfor %}z",
    "{{ missing.attr }}",
    "{% set l = [] %}{% for i in range(3) %}{% set l = l + [i] %}{% endfor %}{{ l }}",
    "{% set ns = namespace(l=[]) %}{% for i in range(3) %}{% set ns.l = ns.l + [i * 2] %}{% endfor %}{{ ns.l|tojson }}{{ ns.l|length }}",
    "{% do list %}x",
    "{% include 'x' %}",
    "{% extends 'x' %}",
    "{% import 'x' as y %}",
    "{% block b %}in{% endblock %}out",
    "{% trans %}x{% endtrans %}",
    "{% if %}",
    "{{ 1 +",
    "{% for x in y %}",
    "{% endif %}",
    "{{ 'abc }}",
    "{{ 1 }}{% if t %}{{ raise_exception('stop here') }}{% endif %}",
    "{{ [1, 2, 3,] }}{{ {'a': 1,} }}",
    "{{ -i }}{{ not not t }}",
    "{{ list[1:][0] }}{{ list[:2]|length }}{{ (list + [9])[-1] }}",
    "{% for x in map %}{{ x }}{% endfor %}",
    "{% for x in map|dictsort %}{{ x }}{% endfor %}",
    "{% for k in map.keys()|sort %}{{ k }}{% endfor %}",
    "{% for g in people|groupby('age') %}{{ g.grouper }}:{{ g.list|length }};{% endfor %}",
    "{% for line in lines.split('\\n') %}[{{ line }}]{% endfor %}",
    "{% set d = dict(map, c=3) %}{{ d.c }}",
    "{% set x = namespace() %}{% set x.y = 5 %}{{ x.y }}{{ x.z is defined }}",
    "{{ loop is defined }}{% for i in [1] %}{{ loop is defined }}{% endfor %}",
    "{{ range is defined }}{{ caller is defined }}",
    "{% for i in range(2) %}\n{{ i }}\n{% endfor %}\n",
    "{% for i in range(2) -%}\n{{ i }}\n{%- endfor %}\n",
    "é{% if t %}ü{% endif %}😀{{ '😀'|length }}",
    "{{ {'role': 'user'}.role }}{{ {'items': 1}['items'] }}",
    "{% set content = map.a %}{% if content is iterable and content is not mapping and content is not string %}seq{% endif %}",
]

SNIPPETS = ["{{ " + expression + " }}" for expression in EXPRESSIONS] + BLOCKS
