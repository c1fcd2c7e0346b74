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
			must: []string{"drop/reopen", "drop/reopen-often", "crash/after-acknowledgement", "info/durability"}, may: anywhere},
		mutant{name: "forgets the last batch when it is opened", suite: overFile(fileFlaws{losesLast: true}),
			must: []string{"drop/reopen", "crash/after-acknowledgement"}, may: anywhere},
		mutant{name: "reads the last five batches when it is opened", suite: overFile(fileFlaws{keepsFive: true}),
			must: []string{"drop/reopen-often", "crash/after-acknowledgement"}, may: anywhere},
		mutant{name: "writes at Close", suite: overFile(fileFlaws{buffers: true}),
			must: []string{"info/durability", "crash/after-acknowledgement", "drop/other-handle", "drop/other-process"}, may: anywhere,
			soak: []string{"soak/kill", "soak/processes"}},
		mutant{name: "never reads what others write", suite: overFile(fileFlaws{neverRefreshes: true}),
			must: []string{"drop/other-handle", "drop/other-process", "info/reach"}, may: anywhere},
		mutant{name: "writes without a lock", suite: overFile(fileFlaws{locksNothing: true}),
			must: []string{"drop/writers-through-handles"}, may: []string{"drop/*", "ctx/*", "batch/*"},
			soak: []string{"soak/processes"}},
		mutant{name: "says nil when a lock times out", suite: overFile(fileFlaws{nilWhenLocked: true}),
			must: []string{"drop/locked", "drop/process-holds-lock"}, may: []string{"ctx/*", "batch/*", "drop/*", "txn/*"}},
		mutant{name: "writes a batch piece by piece", suite: overFile(fileFlaws{piecemeal: true}),
			must: []string{"batch/fails-at-item-256", "crash/while-writing"}, may: anywhere,
			soak: []string{"soak/kill"}},
		mutant{name: "writes to the file inside a transaction", suite: overFile(fileFlaws{writesInFn: true}),
			must: []string{"crash/in-txn", "txn/not-seen-before"}, may: anywhere},
		mutant{name: "leaves its lock when it is killed", suite: overFile(fileFlaws{leavesLock: true}),
			must: []string{"crash/in-visit"}, may: anywhere},
		mutant{name: "says nil when there is no room", suite: overFile(fileFlaws{nilWhenFull: true}),
			must: []string{"drop/full"}, may: []string{"drop/*"}},
		mutant{name: "wipes what it has when there is no room", suite: overFile(fileFlaws{wipesWhenFull: true}),
			must: []string{"drop/full"}},
		mutant{name: "says nil when it is cut off", suite: overFile(fileFlaws{nilWhenCut: true}),
			must: []string{"drop/cut"}, may: []string{"ctx/cut"}},
		mutant{name: "says nil when it is slow", suite: overFile(fileFlaws{nilWhenSlow: true}),
			must: []string{"drop/slow"}, may: []string{"ctx/slow"}},
		mutant{name: "leaves its file open", suite: overFile(fileFlaws{leaksFile: true}),
			must: []string{"close/leaves-nothing"}},
		mutant{name: "closes other handles too", suite: overFile(fileFlaws{closesAll: true}),
			must: []string{"close/one-of-two-handles"}, may: anywhere},
		mutant{name: "drops a write that meets Close", suite: overFile(fileFlaws{dropsAtClose: true}),
			must: []string{"close/under-writers"}, may: []string{"close/*"}, soak: []string{"soak/close"}},
		mutant{name: "drops a transaction that meets Close", suite: overFile(fileFlaws{txnLostAtClose: true}),
			must: []string{"close/waits-for-txn"}},
		mutant{name: "claims less than it keeps", suite: func() Suite { return fileSuite(claims, fileFlaws{}) },
			must: []string{"info/durability"}},
		mutant{name: "claims less than it reaches", suite: func() Suite { return fileSuite(alone, fileFlaws{}) },
			must: []string{"info/reach"}},
	)
	oddCaches = append(oddCaches, mutant{name: "a file", suite: overFile(fileFlaws{}),
		soak: []string{"soak/oracle", "soak/order", "soak/readers", "soak/faults", "soak/close", "soak/kill", "soak/processes"}})
}
