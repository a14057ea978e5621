//! The reference passes the suite too.

mod suite {
    pillarbox_testkit::store_suite!(pillarbox_testkit::MemoryHarness::fresh);
}
