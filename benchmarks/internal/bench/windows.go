package bench

import "math/rand/v2"

// Windows are neighbours among many texts: each call reads others, in random order,
// so that what one call has read is no longer in the processor's caches when its
// texts come again.
type Windows struct {
	texts []string
	order []int
}

// NewWindows returns windows of texts, in an order that seed alone makes.
func NewWindows(seed uint64, texts []string) *Windows {
	return &Windows{texts, rand.New(rand.NewPCG(seed, 1)).Perm(len(texts))}
}

// WindowsInOrder returns windows of texts, one after the other.
func WindowsInOrder(texts []string) *Windows {
	w := &Windows{texts: texts}
	for i := range texts {
		w.order = append(w.order, i)
	}
	return w
}

// Place returns the number of the window of n texts, from 0, that call i of goroutine
// g reads; n must not exceed all texts.
func (w *Windows) Place(g, i, n int) int {
	const apart = 256 // goroutines begin at different places
	return w.order[(g*len(w.order)/apart+i)%len(w.order)] % (len(w.texts) / n)
}

// At returns the texts of that window.
func (w *Windows) At(g, i, n int) []string {
	at := w.Place(g, i, n)
	return w.texts[at*n : (at+1)*n]
}
