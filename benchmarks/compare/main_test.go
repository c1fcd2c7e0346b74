package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// asWorker makes the test binary the process of a predecessor that behaves as the
// variable says.
const asWorker = "COMPARE_TEST_WORKER"

func TestMain(m *testing.M) {
	if how := os.Getenv(asWorker); how != "" {
		pretend(how)
		return
	}
	goleak.VerifyTestMain(closeIdle{m})
}

// closeIdle ends the connections that clients keep in http.DefaultTransport.
type closeIdle struct{ m *testing.M }

func (c closeIdle) Run() int {
	code := c.m.Run()
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	return code
}

// pretend speaks the protocol of worker.py. Each call takes 2 ns and returns the
// digest "right".
func pretend(how string) {
	in := bufio.NewReader(os.Stdin)
	next := func() (r request, ok bool) {
		line, err := in.ReadBytes('\n')
		return r, err == nil && json.Unmarshal(line, &r) == nil
	}
	say := func(reply map[string]any) {
		line, _ := json.Marshal(reply)
		fmt.Println(string(line))
	}
	for {
		r, ok := next()
		if !ok {
			return
		}
		switch {
		case r.Op != "run":
			say(map[string]any{"versions": map[string]string{"how": how}})
		case how == "dies":
			fmt.Fprintln(os.Stderr, "Traceback\nMemoryError")
			os.Exit(3)
		case how == "babbles":
			fmt.Println("no reply at all")
		case how == "unready":
			say(map[string]any{"error": "OSError: not ready"})
		default:
			say(map[string]any{"ready": true})
			if _, ok := next(); !ok {
				return
			}
			if how == "fails" {
				say(map[string]any{"error": "ValueError: not today"})
				continue
			}
			done := map[string]any{"begin": 100 + r.Starts[0][0], "hits": len(r.Starts) * r.PerCall}
			end := 200 + r.Starts[0][0]
			var calls []int
			var answers []map[string]any
			for _, starts := range r.Starts {
				calls = append(calls, 2)
				answers = append(answers, map[string]any{"start": starts[0], "digest": "right"})
			}
			done["end"], done["calls"], done["answers"] = end, calls, answers
			say(done)
		}
	}
}
