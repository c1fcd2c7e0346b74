//go:build unix

package conformance

import (
	"github.com/embedonce/embedonce/backend"
)

// Over files: what memory can't get wrong.
func init() {
	haveFiles = true
	claims := fileInfo
	claims.Durability = backend.NotDurable
	alone := fileInfo
	alone.Reach = backend.ReachHandle
	mutants = append(mutants,
		mutant{name: "forgets all when it is opened", suite: overFile(fileFlaws{forgets: true}),
			must: []string{"drop/reopen", "drop/reopen-often", "crash/after-acknowledgement", "info/durability", "stats/reopen"}, may: anywhere},
		mutant{name: "forgets the last batch when it is opened", suite: overFile(fileFlaws{losesLast: true}),
			must: []string{"drop/reopen", "crash/after-acknowledgement"}, may: anywhere},
		mutant{name: "reads the last five batches when it is opened", suite: overFile(fileFlaws{keepsFive: true}),
			must: []string{"drop/reopen-often", "crash/after-acknowledgement"}, may: anywhere},
		mutant{name: "writes at Close", suite: overFile(fileFlaws{buffers: true}),
			must: []string{"info/durability", "crash/after-acknowledgement", "drop/other-handle", "drop/other-process"}, may: anywhere,
			soak: []string{"soak/kill", "soak/processes"}},
		mutant{name: "never reads what others write", suite: overFile(fileFlaws{neverRefreshes: true}),
			must: []string{"drop/other-handle", "drop/other-process", "info/reach", "delete/written-by-another-handle"}, may: anywhere},
		mutant{name: "writes without a lock", suite: overFile(fileFlaws{locksNothing: true}),
			must: []string{"drop/writers-through-handles"}, may: []string{"drop/*", "ctx/*", "batch/*", "delete/*", "compact/*"},
			soak: []string{"soak/processes"}},
		mutant{name: "says nil when a lock times out", suite: overFile(fileFlaws{nilWhenLocked: true}),
			must: []string{"drop/locked", "drop/process-holds-lock"}, may: []string{"ctx/*", "batch/*", "drop/*", "txn/*", "delete/*", "compact/*"}},
		mutant{name: "writes a batch piece by piece", suite: overFile(fileFlaws{piecemeal: true}),
			must: []string{"batch/fails-at-item-256", "crash/while-writing"}, may: anywhere,
			soak: []string{"soak/kill"}},
		mutant{name: "writes to the file inside a transaction", suite: overFile(fileFlaws{writesInFn: true}),
			must: []string{"crash/in-txn", "txn/not-seen-before"}, may: anywhere},
		mutant{name: "leaves its lock when it is killed", suite: overFile(fileFlaws{leavesLock: true}),
			must: []string{"crash/in-visit"}, may: anywhere},
		mutant{name: "says nil when there is no room", suite: overFile(fileFlaws{nilWhenFull: true}),
			must: []string{"drop/full"}, may: []string{"drop/*", "delete/*"}},
		mutant{name: "wipes what it has when there is no room", suite: overFile(fileFlaws{wipesWhenFull: true}),
			must: []string{"drop/full"}},
		mutant{name: "says nil when it is cut off", suite: overFile(fileFlaws{nilWhenCut: true}),
			must: []string{"drop/cut"}, may: []string{"ctx/cut", "delete/under-faults"}},
		mutant{name: "says nil when it is slow", suite: overFile(fileFlaws{nilWhenSlow: true}),
			must: []string{"drop/slow"}, may: []string{"ctx/slow", "delete/under-faults"}},
		mutant{name: "leaves its file open", suite: overFile(fileFlaws{leaksFile: true}),
			must: []string{"close/leaves-nothing"}},
		mutant{name: "leaves open what it has made", suite: overFile(fileFlaws{leaksNewFile: true}),
			must: []string{"close/leaves-nothing"}},
		mutant{name: "closes other handles too", suite: overFile(fileFlaws{closesAll: true}),
			must: []string{"close/one-of-two-handles"}, may: anywhere},
		mutant{name: "drops a write that meets Close", suite: overFile(fileFlaws{dropsAtClose: true}),
			must: []string{"close/under-writers"}, may: []string{"close/*", "delete/close-waits"}, soak: []string{"soak/close"}},
		mutant{name: "drops a transaction that meets Close", suite: overFile(fileFlaws{txnLostAtClose: true}),
			must: []string{"close/waits-for-txn"}},
		mutant{name: "locks out its own process only", suite: overFile(fileFlaws{locksInProcess: true}),
			must: []string{"drop/writers-through-processes"}, may: []string{"drop/*", "ctx/locked", "*/under-faults"},
			soak: []string{"soak/processes"}},
		mutant{name: "writes over another handle's batches", suite: overFileWith(alone, fileFlaws{neverRefreshes: true}),
			must: []string{"drop/two-handles"}, may: []string{"foreign/*", "*/foreign"}}, // what is planted isn't found
		mutant{name: "forgets all when a second handle is opened", suite: overFileWith(alone, fileFlaws{forgets: true}),
			must: []string{"drop/two-handles"}, may: anywhere},
		mutant{name: "waits for ever to be opened", suite: overFileWith(alone, fileFlaws{waitsToOpen: true}),
			hangs: []string{"drop/two-handles"}, may: []string{"close/*", "info/*"}},
		mutant{name: "stops reading at a damaged batch", suite: overFile(fileFlaws{stopsAtDamage: true}),
			must: []string{"damage/read", "damage/to-client"}, may: []string{"damage/*"}},
		mutant{name: "skips a damaged entry of the log", suite: overFile(fileFlaws{skipsDamaged: true}),
			must: []string{"damage/read", "damage/to-client"}, may: []string{"damage/*", "foreign/*"}},
		mutant{name: "scans what it has read itself", suite: overFile(fileFlaws{scansOwnView: true}),
			must: []string{"scan/other-handle", "stats/other-handle"}, may: []string{"scan/*", "delete/*", "stats/*", "compact/*", "soak/*"}},
		mutant{name: "knows its own positions only", suite: overFile(fileFlaws{ownPositions: true}),
			must: []string{"scan/after-close", "scan/other-handle", "scan/other-process"}},
		mutant{name: "deletes for itself alone", suite: overFile(fileFlaws{deletesInMemory: true}),
			must: []string{"delete/reopen", "delete/reopen-much", "delete/other-handle", "delete/other-process"}, may: []string{"delete/*", "stats/*", "compact/*", "soak/*"},
			soak: []string{"soak/kill"}},
		mutant{name: "counts what there was when it was opened", suite: overFile(fileFlaws{countsLog: true}),
			must: []string{"stats/other-handle", "stats/counts"}, may: []string{"stats/*"}},
		mutant{name: "compacts its log away", suite: overFile(fileFlaws{compactsAway: true}),
			must: []string{"compact/reopen", "compact/other-handle"}, may: []string{"compact/*"}},
		mutant{name: "claims less than it keeps", suite: func() Suite { return fileSuite(claims, fileFlaws{}) },
			must: []string{"info/durability"}, may: []string{"damage/read"}},
		mutant{name: "claims less than it reaches", suite: func() Suite { return fileSuite(alone, fileFlaws{}) },
			must: []string{"info/reach"}},
	)
	oddCaches = append(oddCaches, mutant{name: "a file", suite: overFile(fileFlaws{}),
		soak: []string{"soak/oracle", "soak/order", "soak/readers", "soak/faults", "soak/close", "soak/kill", "soak/processes"}},
		mutant{name: "a file for one handle", suite: overFileWith(alone, fileFlaws{exclusive: true})},
		mutant{name: "a file that each handle has read when it was opened", suite: func() Suite {
			suite := fileSuite(alone, fileFlaws{ownView: true})
			suite.Plant = nil // an open handle would not see it
			return suite
		}},
		mutant{name: "a file that damage makes unusable", suite: overFile(fileFlaws{refusesDamage: true})},
	)
}
