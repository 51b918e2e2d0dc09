//! What refers to what: the definitions of a schema, the rules and terminals of a grammar. The
//! compilers follow references by calling themselves, so how deep that goes is found out first, here
//! without any recursion.

use std::collections::HashMap;

/// Something that is defined once and referred to by name.
#[derive(Default)]
struct Definition {
    /// Levels of nesting at the deepest reference in it.
    depth: usize,
    /// Parts it consists of.
    size: usize,
    targets: Vec<usize>,
    /// Those of the targets that are copied to where they are referred to.
    copied: Vec<usize>,
}

/// Definitions by name.
#[derive(Default)]
pub struct References<'a> {
    numbers: HashMap<(&'a str, Use), usize>,
    definitions: Vec<Definition>,
}

/// The most that following references comes to.
#[derive(Debug, PartialEq, Eq)]
pub struct Extent {
    /// Levels of nesting, along the longest chain of definitions. Definitions that refer to each other
    /// in circles may all be passed before a circle closes, so each counts, once.
    pub depth: usize,
    /// Parts of the largest definition, with all that is copied into it.
    pub size: usize,
}

/// How a definition refers to another.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Use {
    Named,
    Copied,
}

impl<'a> References<'a> {
    /// The definition with this name, as it is where it is used so, and whether nobody has spoken of
    /// that before.
    pub fn definition(&mut self, name: &'a str, by: Use) -> (usize, bool) {
        let count = self.definitions.len();
        let number = *self.numbers.entry((name, by)).or_insert(count);
        if number == count {
            self.definitions.push(Definition::default());
        }
        (number, number == count)
    }

    pub fn add_part(&mut self, definition: usize) {
        self.definitions[definition].size += 1;
    }

    /// `from` refers to `to` from within so many levels of nesting.
    pub fn add(&mut self, from: usize, to: usize, levels: usize, by: Use) {
        let from = &mut self.definitions[from];
        from.depth = from.depth.max(levels);
        from.targets.push(to);
        if by == Use::Copied {
            from.copied.push(to);
        }
    }

    /// By Tarjan's algorithm: circles are found after all that they refer to (R. Tarjan, "Depth-first
    /// search and linear graph algorithms", SIAM J. Comput. 1972), with a stack of our own.
    pub fn extent(&self) -> Extent {
        const NEW: usize = usize::MAX;
        let count = self.definitions.len();
        let (mut order, mut low) = (vec![NEW; count], vec![NEW; count]);
        let mut circles = Circles { of: vec![NEW; count], extents: Vec::new() };
        let (mut open, mut seen) = (Vec::new(), 0);
        for root in 0..count {
            let mut path = if order[root] == NEW { vec![(root, 0)] } else { Vec::new() };
            while let Some((at, edge)) = path.last_mut() {
                let at = *at;
                if order[at] == NEW {
                    order[at] = seen;
                    low[at] = seen;
                    seen += 1;
                    open.push(at);
                }
                if let Some(&to) = self.definitions[at].targets.get(*edge) {
                    *edge += 1;
                    if order[to] == NEW {
                        path.push((to, 0));
                    } else if circles.of[to] == NEW {
                        low[at] = low[at].min(order[to]);
                    }
                    continue;
                }
                path.pop();
                if let Some(&(before, _)) = path.last() {
                    low[before] = low[before].min(low[at]);
                }
                if low[at] == order[at] {
                    let first = open.iter().rposition(|&member| member == at).unwrap_or(0);
                    circles.close(self, &open.split_off(first));
                }
            }
        }
        circles.extents.iter().fold(Extent { depth: 0, size: 0 }, |most, extent| Extent {
            depth: most.depth.max(extent.depth),
            size: most.size.max(extent.size),
        })
    }
}

/// Definitions that refer to each other, and single ones.
struct Circles {
    /// Of each definition, the number of its circle.
    of: Vec<usize>,
    extents: Vec<Extent>,
}

impl Circles {
    fn close(&mut self, all: &References, members: &[usize]) {
        let number = self.extents.len();
        for &member in members {
            self.of[member] = number;
        }
        let (mut own, mut beyond, mut size) = (0usize, 0usize, 0usize);
        for definition in members.iter().map(|&member| &all.definitions[member]) {
            own = own.saturating_add(definition.depth);
            size = size.saturating_add(definition.size);
            let outside = |to: &&usize| self.of[**to] != number;
            for &to in definition.targets.iter().filter(outside) {
                beyond = beyond.max(self.extents[self.of[to]].depth);
            }
            for &to in definition.copied.iter().filter(outside) {
                size = size.saturating_add(self.extents[self.of[to]].size);
            }
        }
        self.extents.push(Extent { depth: own.saturating_add(beyond), size });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(length: usize, names: &[String]) -> References<'_> {
        let mut references = References::default();
        for i in 0..length {
            let (from, _) = references.definition(&names[i], Use::Named);
            let (to, _) = references.definition(&names[i + 1], Use::Named);
            references.add_part(from);
            references.add(from, to, 3, Use::Copied);
        }
        references
    }

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|i| i.to_string()).collect()
    }

    #[test]
    fn a_chain_is_as_deep_as_its_links_together() {
        let names = names(100_001);
        let references = chain(100_000, &names);
        assert_eq!(references.extent(), Extent { depth: 300_000, size: 100_000 });
    }

    #[test]
    fn a_circle_counts_once() {
        let names = names(11);
        let mut references = chain(10, &names);
        references.add(10, 0, 1, Use::Named);
        assert_eq!(references.extent().depth, 31);
    }

    #[test]
    fn copies_of_copies_multiply() {
        let names = names(41);
        let mut references = chain(40, &names);
        for i in 0..40 {
            references.add(i, i + 1, 3, Use::Copied);
        }
        assert!(references.extent().size > 1 << 39);
        assert_eq!(references.extent().depth, 120);
    }
}
