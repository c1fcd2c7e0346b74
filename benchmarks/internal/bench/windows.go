package bench

import "math/rand/v2"

// Windows are neighbours among many texts: each call reads others, in random order,
// so that what one call has read is no longer in the processor's caches when its
// texts come again.
type Windows struct {
	texts []string
	order []int
}

// NewWindows returns windows of texts.
func (r *Run) NewWindows(texts []string) *Windows {
	return &Windows{texts, rand.New(rand.NewPCG(r.Seed, 1)).Perm(len(texts))}
}

// At returns the n texts of call i of goroutine g; n must not exceed all texts.
func (w *Windows) At(g, i, n int) []string {
	const apart = 256 // goroutines begin at different places
	windows := len(w.texts) / n
	at := w.order[(g*len(w.order)/apart+i)%len(w.order)] % windows
	return w.texts[at*n : (at+1)*n]
}
