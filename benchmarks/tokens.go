package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"time"

	"github.com/pkoukk/tiktoken-go"
	loader "github.com/pkoukk/tiktoken-go-loader"

	"github.com/embedonce/embedonce/embed"
	"github.com/embedonce/embedonce/embed/openai"

	"github.com/embedonce/embedonce/benchmarks/internal/bench"
)

// tokenBytes is the length of each text.
const tokenBytes = 740

// tokenRun is the scenario tokens.
type tokenRun struct {
	*bench.Run
	texts []string
	each  time.Duration
	table *bench.Table
}

// tokens measures how texts are counted in the vocabulary cl100k_base: many short
// ones, by the tokenizer alone and inside Client.Plan, beside a library; and long runs
// of one kind of character, which need care to take linear time.
func tokens(ctx context.Context, r *bench.Run) error {
	sizes := bench.Pick(r.Quick, []int{128}, []int{128, 512, 2048, 4096})
	goroutines := bench.Pick(r.Quick, []int{1, 2}, []int{1, 4, 8})
	t := &tokenRun{
		Run:   r,
		each:  bench.Pick(r.Quick, 10*time.Millisecond, 500*time.Millisecond),
		table: r.NewTable(),
	}
	most := sizes[len(sizes)-1]
	all := r.Texts(0, 2*most)
	for i := range most {
		text := all[2*i] + " " + all[2*i+1]
		t.texts = append(t.texts, text[:tokenBytes])
	}
	library, err := tiktokenGo()
	if err != nil {
		return err
	}
	ours := openai.CL100K()
	for _, text := range t.texts[:bench.Pick(r.Quick, 16, most)] {
		if n, want := ours.Count(text), library(text); n != want {
			return fmt.Errorf("a text has %d tokens, and %d for tiktoken-go", n, want)
		}
	}
	runs := longRuns(r)
	for repetition := range r.Runs {
		r.Logf("run %d of %d", repetition+1, r.Runs)
		for _, n := range goroutines {
			for _, texts := range sizes {
				if err := t.count(ctx, repetition, n, texts, library); err != nil {
					return err
				}
			}
			if _, err := t.table.Control(ctx, bench.Result{Goroutines: n}, t.each); err != nil {
				return err
			}
		}
		t.allocations("embedonce", ours.Count)
		t.allocations("tiktoken-go", library)
		for _, run := range runs {
			if err := t.long(ctx, run); err != nil {
				return err
			}
		}
	}
	return t.table.Emit()
}

// tiktokenGo returns the counting of that library, over the same vocabulary.
func tiktokenGo() (count func(string) int, err error) {
	ranks, err := loader.NewOfflineLoader().LoadTiktokenBpe("cl100k_base.tiktoken")
	if err != nil {
		return nil, err
	}
	encoding := &tiktoken.Encoding{
		Name:           tiktoken.MODEL_CL100K_BASE,
		PatStr:         `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
		MergeableRanks: ranks,
		SpecialTokens:  map[string]int{tiktoken.ENDOFTEXT: 100257},
	}
	core, err := tiktoken.NewCoreBPE(ranks, encoding.SpecialTokens, encoding.PatStr)
	if err != nil {
		return nil, err
	}
	library := tiktoken.NewTiktoken(core, encoding, map[string]any{})
	return func(text string) int { return len(library.EncodeOrdinary(text)) }, nil
}

// count measures calls of so many texts; each goroutine counts on its own.
func (t *tokenRun) count(ctx context.Context, repetition, goroutines, texts int, library func(string) int) error {
	client, err := embed.New(openai.New("text-embedding-3-small", &openai.Options{APIKey: "none", BaseURL: "http://127.0.0.1/v1"}), nil)
	if err != nil {
		return err
	}
	defer client.Close()
	side := func(of string, call func(texts []string) error) bench.Side {
		return bench.Side{Case: of, Measure: func(ctx context.Context) (float64, error) {
			pass, err := bench.Loop(ctx, goroutines, t.each, func(int, int) error { return call(t.texts[:texts]) })
			return pass.PerText(texts), err
		}}
	}
	counting := func(count func(string) int) func([]string) error {
		return func(texts []string) error {
			for _, text := range texts {
				if count(text) == 0 {
					return fmt.Errorf("a text of %d bytes has no token", len(text))
				}
			}
			return nil
		}
	}
	cell := bench.Result{Goroutines: goroutines, Texts: texts, Metric: "count", Unit: "µs/text"}
	return t.table.Beside(ctx, repetition, cell,
		side(bench.CaseOurs, counting(openai.CL100K().Count)),
		side(bench.CaseOurs+", Plan", func(texts []string) error {
			plan, err := client.Plan(ctx, texts)
			if err == nil && !plan.Exact {
				err = fmt.Errorf("the plan of %d texts is estimated", len(texts))
			}
			return err
		}),
		side("estimate", counting(embed.Estimate.Count)),
		side("tiktoken-go", counting(library)))
}

// allocations counts them over all texts.
func (t *tokenRun) allocations(of string, count func(string) int) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, text := range t.texts {
		count(text)
	}
	runtime.ReadMemStats(&after)
	cell := bench.Result{Goroutines: 1, Texts: len(t.texts), Metric: "allocations", Unit: "allocations/text"}
	t.table.Add(cell, of, float64(after.Mallocs-before.Mallocs)/float64(len(t.texts)))
}

// longRun is a text of one kind of character, in two lengths.
type longRun struct {
	name        string
	short, long string
}

// longRuns are of 1 MB and of a sixteenth of that; in a quick run, of less.
func longRuns(r *bench.Run) []longRun {
	size := bench.Pick(r.Quick, 32_000, 1_000_000)
	random := rand.New(rand.NewPCG(r.Seed, 2))
	var cjk strings.Builder
	for cjk.Len() < size {
		cjk.WriteRune(0x4e00 + random.Int32N(0x9fa5-0x4e00)) // no two alike in a row, as in a text
	}
	var emoji strings.Builder
	for emoji.Len() < size {
		emoji.WriteRune(0x1f600 + random.Int32N(0x50)) // the faces
	}
	of := func(name, text string) longRun {
		return longRun{name, strings.ToValidUTF8(text[:size/16], ""), strings.ToValidUTF8(text[:size], "")}
	}
	return []longRun{
		of("one letter", strings.Repeat("a", size)),
		of("spaces", strings.Repeat(" ", size)),
		of("CJK", cjk.String()),
		of("emoji", emoji.String()),
	}
}

// long measures both lengths: linear time takes as long for a byte of each.
func (t *tokenRun) long(ctx context.Context, run longRun) error {
	count := openai.CL100K().Count
	measure := func(text string) (float64, error) {
		pass, err := bench.Loop(ctx, 1, t.each, func(int, int) error {
			if count(text) == 0 {
				return fmt.Errorf("a run of %d bytes has no token", len(text))
			}
			return nil
		})
		return 1000 * pass.PerText(len(text)), err // PerText is in µs
	}
	short, err := measure(run.short)
	if err != nil {
		return err
	}
	long, err := measure(run.long)
	if err != nil {
		return err
	}
	cell := bench.Result{Goroutines: 1, Texts: 1, Unit: "ns/byte"}
	cell.Metric = run.name + ", a sixteenth"
	t.table.Add(cell, bench.CaseOurs, short)
	cell.Metric = run.name
	t.table.Add(cell, bench.CaseOurs, long)
	cell.Metric, cell.Unit = run.name+", long / short", "ratio"
	t.table.Add(cell, bench.CaseOurs, long/short)
	return nil
}
