package conformance

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/embedonce/embedonce/backend"
)

var soakCases = []testcase{
	{name: "soak/oracle", rules: "G4 S1 S3 S9 S10 D3 D4 X2", soak: true, fn: soakOracle},
	{name: "soak/order", rules: "S1 S2", needs: []need{needAtomic}, soak: true, fn: soakOrder},
	{name: "soak/readers", rules: "S3 S10", soak: true, fn: soakReaders},
	{name: "soak/faults", rules: "S1 S3 S9", needs: []need{needFault}, soak: true, fn: soakFaults},
	{name: "soak/close", rules: "C2 S3", soak: true, fn: soakClose},
	{name: "soak/kill", rules: "S1 S3 S9 D3", needs: []need{needDurable}, soak: true, fn: soakKill},
	{name: "soak/processes", rules: "S1 S3", needs: []need{needHost}, soak: true, fn: soakProcesses},
}

const (
	soakVariable = "EMBEDONCE_SOAK" // a duration
	seedVariable = "EMBEDONCE_SEED" // a seed to repeat instead of a fresh one
	soakDefault  = 20 * time.Second
)

// Soak checks what takes chance and time: random operations against an oracle,
// contention, faults and kills at random moments. It runs for about as long as
// EMBEDONCE_SOAK says (a duration such as 2m; 20s by default), half of it with a
// fixed seed, half with a fresh one that it prints. EMBEDONCE_SEED runs all of
// it with one seed.
func (s Suite) Soak(t *testing.T) {
	t.Helper()
	r := &runner{suite: &s, child: newChildOf(t), patience: callPatience}
	if r.playChild(t) {
		return
	}
	s.validate(t)
	total := soakDefault
	if text := os.Getenv(soakVariable); text != "" {
		var err error
		if total, err = time.ParseDuration(text); err != nil || total <= 0 {
			t.Fatalf("conformance: %s is %q; allowed is a duration such as 20s", soakVariable, text)
		}
	}
	seeds := []uint64{fixedSeed, rand.Uint64()}
	if text := os.Getenv(seedVariable); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("conformance: %s is %q; allowed is a number up to 2^64", seedVariable, text)
		}
		seeds = []uint64{seed}
	}
	able := 0
	for i := range cases {
		if cases[i].soak && cases[i].unmet(&s) == "" {
			able++
		}
	}
	r.duration = total / time.Duration(max(1, able*len(seeds)))
	r.watchdog = 2*r.duration + 2*time.Minute
	for i, seed := range seeds {
		r.seed = seed
		t.Run([]string{"fixed-seed", "fresh-seed"}[i], func(t *testing.T) {
			t.Logf("seed %d; each case runs for %v", seed, r.duration)
			r.runAll(t, true)
		})
	}
}

// rounds calls f with an environment of its own seed, again and again until the
// case's time is over, at least once. What f opens and makes is released after
// each round. It returns the number of rounds.
func (e *env) rounds(f func(e *env, round int)) int {
	end := time.Now().Add(e.runner.duration)
	for round := 0; ; round++ {
		if round > 0 && time.Now().After(end) {
			return round
		}
		seed := e.seed + uint64(round)
		skipped, messages := e.attempt(fmt.Sprintf("round %d, seed %d:", round, seed), seed, func(e *env) { f(e, round) })
		if skipped {
			e.add(messages)
			e.SkipNow()
		}
	}
}

func soakOrder(e *env) {
	n := e.rounds(func(e *env, round int) {
		e.writersInSomeOrder(2+round%15, 20-round%15)
	})
	e.Logf("%d rounds", n)
}

func soakReaders(e *env) {
	n := e.rounds(func(e *env, round int) {
		if round%2 == 0 {
			e.readWhileWritten(setDirect, 200)
		} else {
			e.readWhileWritten(setInTxn, 200)
		}
	})
	e.Logf("%d rounds", n)
}

func soakFaults(e *env) {
	atItem := e.offers(FailAtItem)
	var kinds []FaultKind // besides FailAtItem
	for _, kind := range []FaultKind{Full, Slow, Cut, Locked} {
		if e.offers(kind) {
			kinds = append(kinds, kind)
		}
	}
	if !atItem && len(kinds) == 0 {
		e.Skipf("Suite.Fault offers no kind of fault")
	}
	n := e.rounds(func(e *env, round int) {
		random := e.rand("fault")
		if len(kinds) == 0 || atItem && random.IntN(2) == 0 {
			e.failsAt(random.IntN(e.atMost(512)))
			return
		}
		e.writersUnder(kinds[random.IntN(len(kinds))])
	})
	e.Logf("%d rounds", n)
}

// offers says whether the store can be made to fail in this way.
func (e *env) offers(kind FaultKind) bool {
	skipped, _ := e.attempt(fmt.Sprintf("a try of %v:", kind), e.seed, func(e *env) {
		location := e.location()
		c := e.open(location)
		e.fault(location, Fault{Kind: kind})()
		e.settle(c)
	})
	return !skipped
}

func soakClose(e *env) {
	n := e.rounds(func(e *env, _ int) { closeUnderWriters(e) })
	e.Logf("%d rounds", n)
}

// register is what the oracle knows of one set of keys that are always written
// together and by one goroutine, so that their order is known.
type register struct {
	keys []backend.Key
	// begun is the last version that a write was begun with, acknowledged the last
	// one that a write returned nil for. Versions in between may be stored or not.
	begun, acknowledged atomic.Int64
	// deletions has the versions that deleted the keys, and 0, when they had never
	// been written.
	mu        sync.Mutex
	deletions map[int64]bool
}

// absentIn says whether a version from low to high has left no value, or may have.
func (r *register) absentIn(low, high int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for v := range r.deletions {
		if v >= low && v <= high {
			return true
		}
	}
	return false
}

// soakOracle: each worker writes and deletes its own registers, with calls that are
// cancelled now and then, and reads everybody's.
func soakOracle(e *env) {
	location := e.location()
	c := e.open(location)
	deletes := e.canDelete(c)
	const workers, each = 6, 4
	registers := make([]*register, workers*each)
	version := make(map[string]int64) // of a value, by key and value
	var versions sync.RWMutex
	random := e.rand("registers")
	for i := range registers {
		n := e.atMost(1 + random.IntN(90))
		if limit := e.s.Want.SnapshotKeys; limit > 0 {
			n = min(n, limit)
		}
		registers[i] = &register{keys: e.keys(fmt.Sprint("register", i), n), deletions: map[int64]bool{0: true}}
	}
	var operations atomic.Int64
	end := time.Now().Add(e.runner.duration)
	e.parallel(workers, func(w int) {
		random := e.rand(fmt.Sprint("worker", w))
		for time.Now().Before(end) && !e.Failed() {
			operations.Add(1)
			ctx := context.Context(e.ctx)
			var maybeEnds bool
			switch random.IntN(8) {
			case 0:
				countdown := newCountdown(e.ctx, 1+random.IntN(12))
				defer countdown.cancel()
				ctx, maybeEnds = countdown, true
			case 1:
				short, cancel := e.timeout(time.Duration(random.IntN(2000)) * time.Microsecond)
				defer cancel()
				ctx, maybeEnds = short, true
			}
			if random.IntN(3) == 0 {
				r := registers[w*each+random.IntN(each)]
				next := r.begun.Load() + 1
				items := e.batch(r.keys, uint64(next))
				versions.Lock()
				for _, item := range items {
					version[string(item.Key[:])+string(item.Value)] = next
				}
				versions.Unlock()
				how := random.IntN(5)
				if how == 0 && deletes { // known before it begins
					r.mu.Lock()
					r.deletions[next] = true
					r.mu.Unlock()
				}
				r.begun.Store(next)
				var err error
				switch {
				case how == 0 && deletes:
					_, err = backend.Delete(ctx, c, r.keys, nil)
				case how%2 == 0:
					err = c.SetMany(ctx, items)
				default:
					err = setInTxn(c, ctx, items)
				}
				e.check(err == nil || maybeEnds && ctx.Err() != nil, "S3", "a write of an own register", "nil", errText(err))
				if err == nil {
					r.acknowledged.Store(next)
				}
				continue
			}
			r := registers[random.IntN(len(registers))]
			least := r.acknowledged.Load()
			values, err := e.tryRead(ctx, c, r.keys)
			if err != nil {
				e.check(maybeEnds && ctx.Err() != nil, "G2", "a read of a register", "nil", errText(err))
				continue
			}
			most := r.begun.Load()
			low, high := int64(1<<60), int64(0)
			missing := false
			versions.RLock()
			for i, value := range values {
				if value == nil {
					missing = true
					continue
				}
				v, known := version[string(r.keys[i][:])+string(value)]
				if !known {
					versions.RUnlock()
					e.broken("G4", "a read of a register", "a value that was written", fmt.Sprintf("%d other bytes", len(value)))
				}
				low, high = min(low, v), max(high, v)
			}
			versions.RUnlock()
			deleted := r.absentIn(least, most)
			e.check(!missing || deleted, "S9", fmt.Sprintf("GetMany of keys of which no version from %d to %d was a deletion", least, most), "a value", "none")
			if high == 0 {
				continue
			}
			e.check(low >= least, "S3", fmt.Sprintf("GetMany begun after version %d was acknowledged", least), "that version or a later one", fmt.Sprintf("version %d", low))
			e.check(high <= most, "G4", fmt.Sprintf("GetMany that ended before version %d was begun", most+1), "no such version", fmt.Sprintf("version %d", high))
			deleted = r.absentIn(max(1, least), most) // a deletion may be seen in parts, a first write not
			e.check(low == high && !missing || deleted || !e.s.Want.SnapshotReads, "S10", fmt.Sprintf("GetMany of %d keys that are written at once", len(values)),
				"one version", fmt.Sprintf("versions %d to %d (keys missing: %v)", low, high, missing))
		}
	})
	check := func(c getter, action string) {
		for _, r := range registers {
			values := e.read(c, r.keys)
			least, most := r.acknowledged.Load(), r.begun.Load()
			var candidates [][]backend.Item
			for v := most; v >= max(1, least); v-- {
				if !r.absentIn(v, v) {
					candidates = append(candidates, e.batch(r.keys, uint64(v)))
				}
			}
			deleted := r.absentIn(least, most)
			whole, missing := false, false
			for i, value := range values {
				known := value == nil && deleted
				missing = missing || value == nil
				for _, batch := range candidates {
					known = known || bytes.Equal(value, batch[i].Value)
				}
				e.check(known, "S9", action, fmt.Sprintf("what one of versions %d to %d has left under each key", least, most),
					fmt.Sprintf("%d other bytes (missing: %v)", len(value), value == nil))
			}
			for _, batch := range candidates {
				same := true
				for i := range batch {
					same = same && bytes.Equal(values[i], batch[i].Value)
				}
				whole = whole || same
			}
			// A deletion that failed may have left a part, and a first write nothing.
			deleted = r.absentIn(max(1, least), most) || least == 0 && bytes.Equal(bytes.Join(values, nil), nil)
			e.check(whole || deleted || !e.s.Want.Atomic, "S1", action, "one version of each register, whole", fmt.Sprintf("a mixture (keys missing: %v)", missing))
		}
	}
	check(c, "the contents after random operations")
	if e.s.Want.Durability >= backend.SurvivesCrash {
		e.close(c)
		check(e.open(location), "the contents after random operations and opening again")
	}
	e.Logf("%d operations", operations.Load())
}

// soakProcesses: several processes write to one store at the same time, and one
// of them is killed.
func soakProcesses(e *env) {
	acknowledged, refused := 0, 0
	rounds := e.rounds(func(e *env, round int) {
		location := e.location()
		c := e.open(location)
		const writers = 3
		random := e.rand("processes")
		children := make([]*process, writers)
		for i := range children {
			children[i] = e.spawn("write-beside", location, i)
			children[i].expect("ready")
		}
		for _, p := range children {
			p.tell("go")
		}
		var own []*written
		for n := range 20 + random.IntN(20) {
			items := e.batch(e.keys(fmt.Sprint("parent", n), e.atMost(1+random.IntN(80))), 1)
			own = append(own, &written{items: items, err: c.SetMany(e.ctx, items)})
		}
		victim := random.IntN(writers + 1) // or nobody
		for i, p := range children {       // before anything is read: they write on until then
			if i == victim {
				_ = p.cmd.Process.Kill() // it may have ended
			} else {
				p.tell("stop")
			}
		}
		for i, p := range children {
			done := make(map[int]bool)
			highest := -1
			for {
				line, ok := p.next()
				if !ok {
					break
				}
				var n int
				if _, err := fmt.Sscanf(line, "done %d", &n); err == nil {
					done[n], highest = true, n
				} else if _, err := fmt.Sscanf(line, "failed %d", &n); err == nil {
					highest = n
					refused++
				} else if _, err := fmt.Sscanf(line, "end %d", &n); err != nil {
					e.Fatalf("a writer: %s", line)
				}
			}
			<-p.ended
			if p.failed() {
				p.broken("no failure")
			}
			for n := range highest + 2 { // the last one may not have been announced
				items := e.batch(e.keys(fmt.Sprintf("child %d batch %d", i, n), e.atMost(1+n%60)), 1)
				if done[n] {
					acknowledged++
					e.seen(c, "S3", "SetMany of one of several processes, read by another", items)
					continue
				}
				now, _ := e.contents(c, "SetMany of one of several processes", items, nil)
				e.check(now == 0 || now == len(items) || !e.s.Want.Atomic, "S1", "SetMany of one of several processes, not acknowledged",
					"all or nothing", fmt.Sprintf("%d of %d items", now, len(items)))
			}
		}
		for _, batch := range own {
			e.allOrNone(c, "SetMany beside other processes", batch.items, nil, batch.err)
		}
	})
	e.Logf("%d rounds, %d batches acknowledged to other processes, 0 of them lost; %d refused", rounds, acknowledged, refused)
}
