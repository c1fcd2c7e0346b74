package conformance

import (
	"fmt"
	"strings"

	"github.com/embedonce/embedonce/backend"
)

var infoCases = []testcase{
	{name: "info/as-wanted", rules: "I1", fn: infoAsWanted},
	{name: "info/sane", rules: "I1", fn: infoSane},
	{name: "info/constant", rules: "I1", fn: infoConstant},
	{name: "info/at-once", rules: "I1", fn: infoAtOnce},
	{name: "info/durability", rules: "I1 S3", fn: infoDurability},
	{name: "info/reach", rules: "I1 S3", fn: infoReach},
	{name: "info/authoritative", rules: "I1 S3", fn: infoAuthoritative},
}

func infoAsWanted(e *env) {
	got, want := e.cache().Info(), e.s.Want
	var wrong []string
	compare := func(field string, got, want any) {
		if got != want {
			wrong = append(wrong, fmt.Sprintf("Info.%s is %v, Suite.Want has %v", field, got, want))
		}
	}
	compare("Atomic", got.Atomic, want.Atomic)
	compare("Durability", got.Durability, want.Durability)
	compare("Reach", got.Reach, want.Reach)
	compare("Lag", got.Lag, want.Lag)
	compare("Copies", got.Copies, want.Copies)
	compare("SnapshotReads", got.SnapshotReads, want.SnapshotReads)
	compare("SnapshotKeys", got.SnapshotKeys, want.SnapshotKeys)
	compare("MayEvict", got.MayEvict, want.MayEvict)
	compare("Capacity", got.Capacity, want.Capacity)
	compare("MaxValueBytes", got.MaxValueBytes, want.MaxValueBytes)
	compare("MaxBatchItems", got.MaxBatchItems, want.MaxBatchItems)
	compare("MaxBatchBytes", got.MaxBatchBytes, want.MaxBatchBytes)
	for _, advice := range []struct {
		field     string
		got, want int
	}{{"Readers", got.Readers, want.Readers}, {"Writers", got.Writers, want.Writers}, {"SplitKeys", got.SplitKeys, want.SplitKeys}} {
		if advice.want != 0 {
			compare(advice.field, advice.got, advice.want)
		}
	}
	fix := ": change the one that is wrong"
	if len(wrong) > 1 {
		fix += ", for each"
	}
	e.check(len(wrong) == 0, "I1", "Info", "the same in Info and Suite.Want", strings.Join(wrong, "; ")+fix)
}

func infoSane(e *env) {
	info := e.cache().Info()
	var wrong []string
	complain := func(bad bool, what string) {
		if bad {
			wrong = append(wrong, what)
		}
	}
	complain(info.Durability > backend.SurvivesPowerLoss, "Durability is no known level")
	complain(info.Reach > backend.ReachHosts, "Reach is no known level")
	complain(info.Lag < 0, "Lag is negative")
	complain(info.Reach == backend.ReachHandle && (info.Lag != 0 || info.Copies), "Lag or Copies is set, and Reach is one handle")
	complain(info.SnapshotKeys < 0 || info.Capacity < 0 || info.MaxValueBytes < 0 || info.MaxBatchItems < 0 || info.MaxBatchBytes < 0, "a limit is negative")
	complain(info.Readers < 0 || info.Writers < 0 || info.SplitKeys < 0, "advice is negative")
	complain(info.SnapshotKeys > 0 && !info.SnapshotReads, "SnapshotKeys is set without SnapshotReads")
	complain(info.SnapshotReads && !info.Atomic, "SnapshotReads is set without Atomic")
	complain(info.Capacity > 0 && !info.MayEvict, "Capacity is set without MayEvict")
	complain(info.MaxValueBytes > 0 && info.MaxBatchBytes > 0 && info.MaxValueBytes > info.MaxBatchBytes, "MaxValueBytes is larger than MaxBatchBytes")
	e.check(len(wrong) == 0, "I1", "Info", "an answer that makes sense", strings.Join(wrong, "; "))
}

func infoConstant(e *env) {
	location := e.location()
	c := e.open(location)
	first := c.Info()
	items := e.batch(e.keys("a", e.atMost(100)), 1)
	e.parallel(4, func(i int) {
		if i == 0 {
			e.set(c, items)
			e.read(c, keysOf(items))
		}
		for range 50 {
			now := c.Info()
			e.check(now == first, "I1", "Info while the cache is used", fmt.Sprintf("%+v", first), fmt.Sprintf("%+v", now))
		}
	})
	e.close(c)
	again := e.open(location).Info()
	e.check(again == first, "I1", "Info of a store that was opened again", fmt.Sprintf("%+v", first), fmt.Sprintf("%+v", again))
}

// infoAtOnce asks while calls hold whatever locks they hold.
func infoAtOnce(e *env) {
	c := e.cache()
	items := e.batch(e.keys("a", 3), 1)
	e.set(c, items)
	ask := func(action string) {
		e.within(e.runner.patience, "I1", action, func() { c.Info() })
	}
	err := c.GetMany(e.ctx, keysOf(items), func(int, []byte) error {
		ask("Info while a visit runs")
		return nil
	})
	e.check(err == nil, "G2", "GetMany", "nil", errText(err))
	err = c.Txn(e.ctx, func(tx backend.Txn) error {
		e.set(tx, items)
		ask("Info while a transaction runs")
		return nil
	})
	e.check(err == nil, "T3", "Txn", "nil", errText(err))
}

// infoDurability decides the claim in both directions: a child writes and kills
// itself as soon as it is acknowledged. Three times out of three is no luck.
func infoDurability(e *env) {
	kept := 0
	const tries = 3
	for range tries {
		location := e.location()
		p := e.spawn("write-and-die", location, 1)
		p.expectEnd()
		c := e.openAfter(location, "S3", "Open after SIGKILL of a process in which SetMany had returned nil")
		items := e.batch(e.keys("child 0", e.atMost(64)), 1)
		now, _ := e.contents(c, "SetMany in a process that was killed after it returned nil", items, nil)
		if now == len(items) {
			kept++
		}
		e.close(c)
	}
	claim := e.s.Want.Durability
	action := fmt.Sprintf("SIGKILL after an acknowledged SetMany; Info.Durability is %v", claim)
	if claim >= backend.SurvivesCrash {
		e.check(kept == tries, "S3", action, "the batch there in each try", fmt.Sprintf("the batch was there in %d of %d tries", kept, tries))
		return
	}
	e.check(kept < tries, "I1", action, "a batch lost in some try, as Info says, or a claim of "+backend.SurvivesCrash.String(),
		fmt.Sprintf("nothing was lost in %d kills: set Info.Durability (and Suite.Want) to SurvivesCrash", tries))
}

// infoReach decides the claim in both directions for handles of this process. A
// store that one handle has for itself need not open a second one.
func infoReach(e *env) {
	location := e.location()
	one := e.open(location)
	claim := e.s.Want.Reach
	action := fmt.Sprintf("SetMany through one handle, GetMany through another; Info.Reach is %v", claim)
	items := e.batch(e.keys("a", e.atMost(20)), 1)
	if claim >= backend.ReachHost {
		two := e.open(location)
		e.set(one, items)
		e.seen(two, "S3", action, items)
		more := e.batch(e.keys("b", e.atMost(20)), 2) // a copy of "a" may stay
		e.set(two, more)
		e.seen(one, "S3", action+", the other way", more)
		return
	}
	two, refusal := e.tryOpen(location)
	if refusal != "" {
		return
	}
	e.set(one, items)
	values, err := e.tryRead(e.ctx, two, keysOf(items))
	seen := 0
	for i, value := range values {
		if string(value) == string(items[i].Value) {
			seen++
		}
	}
	e.check(err != nil || seen < len(items), "I1", action, "nothing seen, as Info says, or a claim of "+backend.ReachHost.String(), "the whole batch is seen")
}

// infoAuthoritative: the layer whose answer counts has what was acknowledged.
func infoAuthoritative(e *env) {
	c := e.cache()
	items := e.batch(e.keys("a", e.atMost(50)), 1)
	e.set(c, items)
	layer := c
	for depth := 0; ; depth++ {
		below, ok := layer.(backend.Layered)
		if !ok {
			break
		}
		e.check(depth < 20, "I1", "Authoritative, again and again", "an end of the layers", "20 layers")
		layer = below.Authoritative()
		e.check(layer != nil, "I1", "Authoritative", "a cache", "nil")
	}
	e.stored(layer, "S3", "SetMany through a cache, GetMany from its authoritative layer", items)
	c.Info()
}
