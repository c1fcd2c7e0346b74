package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// pretended are processes that behave as their names say.
func pretended(t *testing.T, ctx context.Context, how ...string) *predecessor {
	p := &predecessor{}
	for _, how := range how {
		w, err := startWorker(ctx, append(os.Environ(), asWorker+"="+how), os.Args[0])
		require.NoError(t, err)
		t.Cleanup(w.stop)
		p.workers = append(p.workers, w)
	}
	return p
}

func openAll(t *testing.T, p *predecessor) session {
	s, err := p.open(t.Context(), t.TempDir(), layout{len(p.workers), 2, 1})
	require.NoError(t, err)
	return s
}

func TestProcessesShareTheLanes(t *testing.T) {
	p := pretended(t, t.Context(), "works", "works")
	s := openAll(t, p)
	for range 2 {
		out, err := s.run(t.Context(), work{perCall: 10, starts: [][]int{{50}, {10}, {20}, {30}}})
		require.NoError(t, err)
		// One process ran from 150 to 250, the other from 120 to 220.
		require.Equal(t, outcome{
			elapsed: 130, texts: 40, hits: 40,
			calls:   []time.Duration{2, 2, 2, 2},
			answers: []answer{{50, "right"}, {10, "right"}, {20, "right"}, {30, "right"}},
		}, out)
	}
	require.NoError(t, s.close())

	_, err := p.open(t.Context(), t.TempDir(), layout{3, 1, 1})
	require.ErrorContains(t, err, "3 processes asked for, has 2")
}

// TestFailuresKeepStep: what one process says of a failed run must not be taken for
// the answer to what it is asked next.
func TestFailuresKeepStep(t *testing.T) {
	for _, how := range []string{"fails", "unready"} {
		for _, order := range [][]string{{how, "works"}, {"works", how}} {
			p := pretended(t, t.Context(), order...)
			s := openAll(t, p)
			for range 2 {
				_, err := s.run(t.Context(), work{perCall: 10, starts: [][]int{{1}, {2}, {3}, {4}}})
				require.ErrorContains(t, err, "the predecessor failed: ", order)
			}
			for i, w := range p.workers {
				r, err := w.ask(request{Op: "hello"})
				require.NoError(t, err)
				require.Equal(t, order[i], r.Versions["how"])
			}
			require.NoError(t, s.close())
		}
	}
}

func TestProcessesThatBreak(t *testing.T) {
	w := work{perCall: 1, starts: [][]int{{0}, {1}}}

	p := pretended(t, t.Context(), "dies")
	s := openAll(t, p)
	_, err := s.run(t.Context(), w)
	require.ErrorContains(t, err, "process ended")
	require.ErrorContains(t, err, "MemoryError")
	require.Error(t, s.close())

	_, err = openAll(t, pretended(t, t.Context(), "babbles")).run(t.Context(), w)
	require.ErrorContains(t, err, "no reply")

	ctx, cancel := context.WithCancel(t.Context())
	s = openAll(t, pretended(t, ctx, "works"))
	cancel()
	_, err = s.run(t.Context(), w)
	require.ErrorIs(t, err, context.Canceled)
}

// TestScript runs worker.py itself, with modules that stand in for the packages.
func TestScript(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not on this machine, where the predecessor isn't measured either")
	}
	stubs, err := filepath.Abs("testdata/stubs")
	require.NoError(t, err)
	env := append(workerEnvironment(os.Environ(), t.TempDir()), "PYTHONPATH="+stubs, "PYTHONDONTWRITEBYTECODE=1")
	texts := makeTexts(64, 1)
	texts[63] = "fail"

	for _, tasks := range []bool{false, true} {
		p := &predecessor{tasks: tasks, baseURL: "http://127.0.0.1:1/v1"}
		for range 2 {
			w, err := startWorker(t.Context(), env, python, "worker.py")
			require.NoError(t, err)
			t.Cleanup(w.stop)
			_, err = w.ask(request{Op: "texts", Texts: texts})
			require.NoError(t, err)
			p.workers = append(p.workers, w)
		}
		s := openAll(t, p)
		right := func(start, n int) string {
			sum := sha256.Sum256([]byte(strings.Join(texts[start:start+n], "")))
			return hex.EncodeToString(sum[:])
		}

		// Four lanes make each call once, and keep all answers.
		w := work{perCall: 4, checkAll: true, starts: [][]int{{0, 4}, {8, 12}, {16, 20}, {24, 28}}}
		out, err := s.run(t.Context(), w)
		require.NoError(t, err)
		require.Equal(t, 32, out.texts)
		require.Zero(t, out.hits)
		require.Len(t, out.calls, 8)
		require.Positive(t, out.elapsed)
		var all []answer
		for _, starts := range w.starts {
			for _, start := range starts {
				all = append(all, answer{start, right(start, 4)})
			}
		}
		require.Equal(t, all, out.answers)

		// Then, for a while, what is known; the last answer of each lane is kept.
		w.checkAll, w.limit = false, 5*time.Millisecond
		out, err = s.run(t.Context(), w)
		require.NoError(t, err)
		require.Equal(t, out.texts, out.hits)
		require.Len(t, out.answers, 4)
		for _, a := range out.answers {
			require.Equal(t, right(a.start, 4), a.digest)
		}

		// An error of the library is one of the run, and the process goes on.
		_, err = s.run(t.Context(), work{perCall: 4, starts: [][]int{{0}, {60}, {0}, {4}}})
		require.ErrorContains(t, err, "RuntimeError: no vectors today")
		_, err = p.workers[0].ask(request{Op: "nonsense"})
		require.ErrorContains(t, err, "unknown op nonsense")
		require.NoError(t, s.close())
	}
}
