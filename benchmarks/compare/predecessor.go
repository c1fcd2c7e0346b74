package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// predecessor is the Python library over diskcache, in one process or more, with
// threads or with tasks of one event loop.
type predecessor struct {
	workers []*worker
	baseURL string
	tasks   bool
}

func (p *predecessor) name() string {
	if p.tasks {
		return "predecessor async"
	}
	return "predecessor"
}

func (p *predecessor) copyStore(_ context.Context, from, to string) error {
	return copyFolder(from, to)
}
func (p *predecessor) dropStore(string) {}

func (p *predecessor) open(_ context.Context, dir string, l layout) (session, error) {
	if l.processes > len(p.workers) {
		return nil, fmt.Errorf("%s: %d processes asked for, has %d", p.name(), l.processes, len(p.workers))
	}
	s := &predecessorSession{workers: p.workers[:l.processes]}
	for _, w := range s.workers {
		_, err := w.ask(request{Op: "open", Dir: dir, BaseURL: p.baseURL, Model: model, Clients: l.clients, Tasks: p.tasks})
		if err != nil {
			return nil, errors.Join(err, s.close())
		}
	}
	return s, nil
}

type predecessorSession struct{ workers []*worker }

// run shares the lanes evenly among the processes. They are ready before the first
// of them begins.
func (s *predecessorSession) run(_ context.Context, w work) (outcome, error) {
	each := len(w.starts) / len(s.workers)
	// Each process is asked for what it owes, whatever became of the others: the next
	// question must not get an old answer.
	var failures []error
	var waiting []*worker
	for i, worker := range s.workers {
		err := worker.send(request{Op: "run", PerCall: w.perCall, LimitNS: int64(w.limit),
			CheckAll: w.checkAll, Starts: w.starts[i*each : (i+1)*each]})
		if err == nil {
			waiting = append(waiting, worker)
		}
		failures = append(failures, err)
	}
	ready := waiting[:0:0]
	for _, worker := range waiting {
		r, err := worker.receive()
		if err == nil && !r.Ready {
			err = errors.New("the predecessor's process is not ready and doesn't say why")
		}
		if err == nil {
			ready = append(ready, worker)
		}
		failures = append(failures, err)
	}
	for _, worker := range ready {
		failures = append(failures, worker.send(request{Op: "go"}))
	}
	var out outcome
	var begin, end int64
	for i, worker := range ready {
		r, err := worker.receive()
		failures = append(failures, err)
		if i == 0 || r.Begin < begin {
			begin = r.Begin
		}
		end = max(end, r.End)
		for _, ns := range r.Calls {
			out.calls = append(out.calls, time.Duration(ns))
		}
		out.texts += len(r.Calls) * w.perCall
		out.hits += r.Hits
		for _, a := range r.Answers {
			out.answers = append(out.answers, answer{a.Start, a.Digest})
		}
	}
	if err := errors.Join(failures...); err != nil {
		return outcome{}, err
	}
	out.elapsed = time.Duration(end - begin)
	return out, nil
}

func (s *predecessorSession) close() error {
	var all []error
	for _, w := range s.workers {
		_, err := w.ask(request{Op: "close"})
		all = append(all, err)
	}
	return errors.Join(all...)
}
