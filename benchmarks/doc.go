// Benchmarks measures embedonce: the figures in docs/benchmarks.md come from here, and
// from package compare those beside others.
// From the root of the repository:
//
//	go run ./benchmarks list
//	go run ./benchmarks hits -quick
//	go run ./benchmarks hits -json > benchmarks/results/hits.jsonl
//	go run ./benchmarks report benchmarks/results/*.jsonl
//
// A quick run ends within 45 seconds and shows that all works; its figures are not
// for publication, and report refuses them. With -json each result is a line of JSON
// ([bench.Result]), after a line for the machine, the versions and the seed
// ([bench.Header]). Report makes docs/benchmarks.md and the charts in docs/charts of
// such lines; what it says around them is in docs.md.tmpl.
//
// # How is measured
//
// The product is measured beside its floor, the same steps written by hand in one
// loop and nothing else, and beside a control that needs the processor alone: in one
// run, in turn, and in another order in each repetition, so that a machine that is
// slower for a while is so for all of them. Each repetition has a fresh copy of a
// store that was prepared once. Goroutines warm up and then start together. A figure
// is the median over the repetitions, with its spread beside it. Servers are those of
// this machine; others are refused.
//
// # To add a scenario
//
// Write a file with one function and add it to the table in scenarios.go; the table
// is all that there is to know of it:
//
//	func misses(ctx context.Context, r *bench.Run) error {
//		backends, err := r.Backends(ctx, "memory", "sqlite") // asks for what is not installed, says what is skipped
//		...
//		table := r.NewTable()
//		for _, b := range backends {
//			fill := func(c backend.Cache) error { ... } // once
//			err := r.Repeat(ctx, b, b.Name, fill, func(repetition int, store *bench.Store) error {
//				// Two fresh copies each time, one for the floor; WithClient gives one.
//				return store.BesideFloor(ctx, func(copied *bench.Copy, byHand *bench.Floor) error {
//					...
//					return table.Beside(ctx, repetition, cell, ours, floor) // in turn
//				})
//			})
//			...
//		}
//		return table.Emit() // medians, spreads and quotients
//	}
//
// In cell are the fields of [bench.Result] that all sides share. A scenario's own
// parameter, such as a rate of hits, goes into Case ("75 % hits") or Metric. What the
// scenario needs beside that is in package bench: Pick for what a quick run does
// less, Texts, LocalProvider (answers at once) and NewServer (HTTP, with a latency,
// base64), Loop (a barrier, then calls for some time; the time of each call for
// percentiles), Control, Store.Floor (the store by hand). Figures that Beside doesn't
// fit are given to Table.Add, or as a whole to Run.Emit. A scenario must not depend
// on another one, on the order of map iteration, or on a random choice that
// Run.Seed doesn't make.
//
// Then add a section to docs.md.tmpl, with the functions that package report offers,
// inside {{if has "scenario=NAME"}}.
//
// TestScenariosMakeThePage makes a quick run of each scenario of the table on memory
// and sqlite, under the race detector too: a quick run should be small. A backend is added
// in internal/bench/backends.go, with its floor in internal/floor.
package main
