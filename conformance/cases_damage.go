package conformance

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/embed"
)

// What lies on a disk changes by itself. A store may find that out or not: what
// it may not do is to say that nothing is there.
var damageCases = []testcase{
	{name: "damage/read", rules: "G1 S9 X3", needs: []need{needFault}, fn: damageRead},
	{name: "damage/written-over", rules: "S2 S3 X3", needs: []need{needFault}, fn: damageWrittenOver},
	{name: "damage/to-client", rules: "G4 G6 S2 S9", needs: []need{needFault}, fn: damageToClient},
}

// At how many places the suite has a store damaged.
const damagePlaces = 4

// damaged makes a store with 200 entries in 4 batches, one of which is damaged.
func (e *env) damaged(place int) (location string, c backend.Cache, items []backend.Item) {
	location = e.location()
	c = e.open(location)
	for b := range 4 {
		batch := e.batch(e.keys(fmt.Sprint("batch", b), 50), 1)
		e.set(c, batch)
		items = append(items, batch...)
	}
	e.fault(location, Fault{Kind: Damage, Item: place})()
	return location, c, items
}

// openDamaged opens a damaged store again. It may refuse, and c is nil then.
func (e *env) openDamaged(location string) (c backend.Cache) {
	action := "Open of a store with damaged values"
	e.within(e.runner.patience, "X3", action, func() {
		var refusal string
		if c, refusal = e.tryOpen(location); refusal != "" {
			e.Logf("%s: %s", action, refusal)
		}
	})
	return c
}

// seesDamage reads what may be damaged, and says whether that shows.
func (e *env) seesDamage(c getter, how string, items []backend.Item) (shows bool) {
	action := fmt.Sprintf("GetMany of %d stored keys, some of whose values are damaged, %s", len(items), how)
	e.within(e.runner.patience, "X3", action, func() {
		values, err := e.tryRead(e.ctx, c, keysOf(items))
		shows = err != nil
		for i, value := range values {
			e.check(err != nil || value != nil, "S9", action, "an error, or a visit of each key: with the value as it is now, or with nil if it can't be read",
				fmt.Sprintf("nil, and no visit of index %d", i))
			shows = shows || !bytes.Equal(value, items[i].Value)
		}
	})
	return shows
}

func damageRead(e *env) {
	for place := range damagePlaces {
		location, c, items := e.damaged(place)
		shows := e.seesDamage(c, "through a handle that was open before", items)
		if e.s.Want.Durability >= backend.SurvivesCrash {
			_ = c.Close() // it may say that something is wrong
			if again := e.openDamaged(location); again == nil || e.seesDamage(again, "after opening again", items) {
				shows = true
			}
		}
		if !shows {
			e.Fatalf("Suite.Fault changed nothing that is stored, for %v at place %d: each value comes back as it was", Damage, place)
		}
	}
}

// damageWrittenOver: what is written after the damage is stored like anything
// else, or there is an error.
func damageWrittenOver(e *env) {
	for place := range damagePlaces {
		location, c, items := e.damaged(place)
		healed := e.batch(keysOf(items), 2)
		action := "SetMany over entries some of which are damaged"
		writeAll := func(c backend.Cache, how string) (all bool) {
			all = true
			e.within(e.runner.patience, "X3", action+how, func() {
				for at := 0; at < len(healed); at += e.atMost(50) {
					batch := healed[at:min(at+e.atMost(50), len(healed))]
					if err := c.SetMany(e.ctx, batch); err != nil {
						e.Logf("%s%s: %v", action, how, err)
						all = false
						continue
					}
					e.stored(c, "S3", action+how+", which returned nil", batch)
				}
			})
			return all
		}
		if place%2 == 0 || e.s.Want.Durability < backend.SurvivesCrash {
			writeAll(c, "")
			e.seesDamage(c, "after a write over them", items)
			continue
		}
		_ = c.Close()
		again := e.openDamaged(location)
		if again == nil || !writeAll(again, ", after opening again") {
			continue
		}
		e.usable(again, "S3", "a write over damaged entries")
		e.close(again)
		again = e.openAfter(location, "S9", "Open of a store in which every damaged entry was overwritten")
		e.stored(again, "S9", action+", which returned nil, after opening again", healed)
	}
}

// damageToClient: a damaged record is a miss, counted under a reason, and no
// other one is.
func damageToClient(e *env) {
	k := e.newKnown()
	e.fault(k.location, Fault{Kind: Damage})()
	k.embedDamaged("through a handle that was open before")
	k.embedDamaged("through a handle that was open before, once more")
	if e.s.Want.Durability < backend.SurvivesCrash {
		return
	}
	k = e.newKnown()
	e.fault(k.location, Fault{Kind: Damage, Item: 1})()
	_ = k.cache.Close()
	if k.cache = e.openDamaged(k.location); k.cache == nil {
		return
	}
	var err error
	if k.client, err = embed.New(k.provider, &embed.Options{Cache: k.cache}); err != nil {
		e.Fatalf("make a client: %v", err)
	}
	e.Cleanup(func() { _ = k.client.Close() })
	healed := k.embedDamaged("after opening again")
	if k.embedDamaged("after opening again, once more") && healed {
		k.embed("damaged entries that were healed", nil)
	}
}

// embedDamaged asks the client for all texts, and says whether the cache did all
// that it was asked for.
func (k *known) embedDamaged(how string) bool {
	e := k.e
	action := fmt.Sprintf("Embed of %d stored texts, some of whose records are damaged, %s", len(k.texts), how)
	whole := false
	e.within(2*e.runner.patience, "X3", action, func() {
		response, err := k.client.Embed(e.ctx, k.texts)
		e.check(err == nil, "G6", action, "nil", errText(err))
		for i, text := range k.texts {
			e.check(slices.Equal(response.Vector(i), k.provider.vector(text)), "G4", action, "the right vector for each text", fmt.Sprintf("another one for text %d", i))
		}
		u := response.Usage
		if whole = u.CacheFailures == 0 && response.CacheErr == nil; !whole {
			return // paid for again, and not in silence
		}
		foreign := 0
		for _, n := range u.Foreign {
			foreign += n
		}
		e.check(u.Misses == foreign, "S9", action, "each miss a damaged record", fmt.Sprintf("%d misses, %d of them damaged: %v", u.Misses, foreign, u.Foreign))
	})
	return whole
}
