package conformance

import (
	"fmt"
	"time"
)

// soakKill kills a writer at random moments, again and again on one store, so
// that each recovery is followed by another crash. Where the store can, the writer
// deletes too.
func soakKill(e *env) {
	random := e.rand("kill")
	end := time.Now().Add(e.runner.duration)
	probe := e.cache()
	deletes := e.canDelete(probe)
	e.close(probe)
	kills, acknowledged, deleted := 0, 0, 0
	for kills == 0 || time.Now().Before(end) {
		location := e.location()
		var earlier []*crashState
		for run := 0; run < 25 && (kills == 0 || time.Now().Before(end)); run++ {
			delay := time.Duration(random.Int64N(int64(40 * time.Millisecond)))
			if random.IntN(4) == 0 {
				delay /= 20
			}
			sure := e.killWriter(location, run, deletes, func(p *process, said *crashLog) {
				timer := time.NewTimer(delay)
				defer timer.Stop()
				for {
					select {
					case line, ok := <-p.lines:
						if !ok {
							return
						}
						said.take(p, line)
					case <-timer.C:
						return
					}
				}
			})
			kills++
			for _, state := range sure {
				if state.versions[0] {
					deleted++
				} else {
					acknowledged++
				}
			}
			earlier = append(earlier, sure...)
		}
		c := e.openAfter(location, "S9", fmt.Sprintf("Open after %d kills of writers", kills))
		for _, state := range earlier {
			state.check(e, c, "a writer that was killed, after others were killed too")
		}
		e.close(c)
	}
	e.Logf("%d kills, %d batches acknowledged, 0 of them lost; %d deleted, 0 of them back", kills, acknowledged, deleted)
}
