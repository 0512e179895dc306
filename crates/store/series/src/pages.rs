//! A table by number of which most numbers may be empty: pages of a few places each, and none where
//! nothing is.

/// Places of a page.
const PLACES: usize = 64;

#[derive(Debug)]
struct Page<T> {
    places: Box<[Option<T>]>,
    taken: usize,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Pages<T> {
    table: Vec<Option<Box<Page<T>>>>,
    taken: usize,
    used: usize,
}

impl<T> Default for Pages<T> {
    fn default() -> Self {
        Self { table: Vec::new(), taken: 0, used: 0 }
    }
}

impl<T> Pages<T> {
    /// What is at a number.
    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        let (page, place) = split(number);
        self.table.get(page)?.as_ref()?.places.get(place)?.as_ref()
    }

    /// Put something at a number; what was there.
    pub(crate) fn insert(&mut self, number: u32, it: T) -> Option<T> {
        let (page, place) = split(number);
        if self.table.len() <= page {
            self.table.resize_with(page + 1, || None);
        }
        let slot = self.table.get_mut(page)?;
        if slot.is_none() {
            self.used += 1;
        }
        let page = slot.get_or_insert_with(|| {
            Box::new(Page { places: (0..PLACES).map(|_| None).collect(), taken: 0 })
        });
        let before = page.places.get_mut(place)?.replace(it);
        page.taken += usize::from(before.is_none());
        self.taken += usize::from(before.is_none());
        before
    }

    /// Take away what is at a number.
    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        let (page, place) = split(number);
        let slot = self.table.get_mut(page)?;
        let it = slot.as_mut()?.places.get_mut(place)?.take()?;
        self.taken -= 1;
        if let Some(page) = slot {
            page.taken -= 1;
            if page.taken == 0 {
                *slot = None;
                self.used -= 1;
            }
        }
        Some(it)
    }

    /// How many numbers have something.
    pub(crate) fn len(&self) -> usize {
        self.taken
    }

    /// Memory of the pages, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.used * PLACES * size_of::<Option<T>>() + self.table.len() * size_of::<usize>()
    }
}

fn split(number: u32) -> (usize, usize) {
    (number as usize / PLACES, number as usize % PLACES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_are_empty_take_no_memory() {
        let mut pages = Pages::default();
        for number in [0, 63, 64, 1_000_000] {
            assert_eq!(pages.insert(number, number), None);
        }
        assert_eq!(pages.insert(63, 7), Some(63));
        assert_eq!((pages.len(), pages.used), (4, 3));
        assert_eq!(pages.remove(1_000_000), Some(1_000_000));
        assert_eq!((pages.remove(1_000_000), pages.remove(65)), (None, None));
        assert_eq!((pages.get(63), pages.get(62), pages.get(9_000_000)), (Some(&7), None, None));
        assert_eq!((pages.len(), pages.used), (3, 2));
    }
}
