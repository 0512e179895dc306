//! A sparse table indexed by number: pages of entries, grouped in regions, allocated on demand.
//! Memory grows with the number of entries, not with the largest number.

/// Entries per page.
const PLACES: usize = 64;
/// Pages per region.
const PAGES: usize = 1024;

#[derive(Debug)]
struct Page<T> {
    places: Box<[Option<T>]>,
    taken: usize,
}

#[derive(Debug)]
struct Region<T> {
    /// Slots up to the highest page that ever existed.
    pages: Vec<Option<Box<Page<T>>>>,
    used: usize,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Pages<T> {
    regions: Vec<Option<Box<Region<T>>>>,
    taken: usize,
    /// Number of allocated pages, and of slots for pages.
    used: usize,
    room: usize,
}

impl<T> Default for Pages<T> {
    fn default() -> Self {
        Self { regions: Vec::new(), taken: 0, used: 0, room: 0 }
    }
}

impl<T> Pages<T> {
    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        let (region, page, place) = split(number);
        let region = self.regions.get(region)?.as_ref()?;
        region.pages.get(page)?.as_ref()?.places.get(place)?.as_ref()
    }

    /// Inserts an entry at a number and returns the previous one.
    pub(crate) fn insert(&mut self, number: u32, it: T) -> Option<T> {
        let (region, page, place) = split(number);
        if self.regions.len() <= region {
            self.regions.resize_with(region + 1, || None);
        }
        let region = self.regions.get_mut(region)?;
        let region = region.get_or_insert_with(|| Box::new(Region { pages: Vec::new(), used: 0 }));
        if region.pages.len() <= page {
            self.room += page + 1 - region.pages.len();
            region.pages.resize_with(page + 1, || None);
        }
        let slot = region.pages.get_mut(page)?;
        if slot.is_none() {
            self.used += 1;
            region.used += 1;
        }
        let page = slot.get_or_insert_with(|| {
            Box::new(Page { places: (0..PLACES).map(|_| None).collect(), taken: 0 })
        });
        let before = page.places.get_mut(place)?.replace(it);
        page.taken += usize::from(before.is_none());
        self.taken += usize::from(before.is_none());
        before
    }

    /// Removes and returns the entry at a number.
    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        let (region, page, place) = split(number);
        let whole = self.regions.get_mut(region)?;
        let region = whole.as_mut()?;
        let slot = region.pages.get_mut(page)?;
        let page = slot.as_mut()?;
        let it = page.places.get_mut(place)?.take()?;
        self.taken -= 1;
        page.taken -= 1;
        if page.taken == 0 {
            *slot = None;
            self.used -= 1;
            region.used -= 1;
        }
        if region.used == 0 {
            self.room -= region.pages.len();
            *whole = None;
        }
        Some(it)
    }

    /// Returns the number of entries.
    pub(crate) fn len(&self) -> usize {
        self.taken
    }

    /// Returns the allocated memory, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let table = self.room + self.regions.len();
        self.used * PLACES * size_of::<Option<T>>() + table * size_of::<usize>()
    }
}

/// Returns the region, page and slot of a number.
fn split(number: u32) -> (usize, usize, usize) {
    let number = number as usize;
    (number / PLACES / PAGES, number / PLACES % PAGES, number % PLACES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_pages_are_released() {
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

    #[test]
    fn sparse_table_with_a_high_number_stays_small() {
        let mut pages = Pages::default();
        let number = u32::MAX - 1;
        pages.insert(number, 1u32);
        assert!(pages.bytes() < 1 << 20, "{} bytes", pages.bytes());
        let before = pages.bytes();
        pages.insert(number - 65_536, 2);
        pages.remove(number - 65_536);
        assert_eq!((pages.bytes(), pages.get(number)), (before, Some(&1)));
    }
}
