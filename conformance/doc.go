// Package conformance is the test suite that every cache behind
// [github.com/embedonce/embedonce/backend.Cache] has to pass, whoever wrote it.
//
// A backend's test is a Suite that says how to make and open a store, and one
// call:
//
//	func suite() conformance.Suite {
//		return conformance.Suite{
//			New:  func(t testing.TB) string { return t.TempDir() },
//			Open: func(t testing.TB, location string) backend.Cache { ... },
//			Want: backend.Info{Atomic: true, Durability: backend.SurvivesCrash},
//		}
//	}
//
//	func TestConformance(t *testing.T) { suite().Run(t) }
//	func TestSoak(t *testing.T)        { suite().Soak(t) }
//	func BenchmarkCache(b *testing.B)  { suite().Bench(b) }
//
// Cases are named group/name: go test -run 'Conformance/txn' runs the group
// txn, and -v lists at the end what could not run and why. A failed case prints
// the rule, word for word as the documentation of package backend has it, what
// was done, what should have come out and what did, and the seed.
//
// The groups scan, delete, stats and compact are for the optional interfaces of
// package backend. A cache that lacks one of these, or a decorator that answers
// [github.com/embedonce/embedonce/backend.ErrUnsupported], has their cases skipped
// by name.
//
// # Other processes
//
// Some cases need a second process: one that holds a lock, or one that is
// killed. The suite starts the test binary again with -test.run set to the
// calling test; in the child, Run and Soak play the part that an environment
// variable describes, and then end the process. Nothing is asked of the author
// of a backend but that the test calls Run or Soak each time it runs, and that
// Open works from the location alone. TestMain, set-up before the call, flags of
// the test's own and subtests all work: the child gets the same flags.
//
// # Time
//
// Run is deterministic: the same keys, the same values, no chance. A wait only
// bounds how long the suite gives a wrong cache to show itself, or a store to
// reach Info.Lag. Each case has a watchdog. What depends on chance is
// in Soak, which runs for the duration in EMBEDONCE_SOAK (20 s by default), half
// of it with a fixed seed and half with a fresh one; EMBEDONCE_SEED repeats a
// seed that failed.
package conformance
