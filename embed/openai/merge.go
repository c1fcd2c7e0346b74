package openai

import "math"

// smallPiece is up to which length in bytes the lowest rank is looked for by
// going through all pairs: quicker for words, quadratic beyond.
const smallPiece = 96

// noRank is the rank of two parts that are no token together.
const noRank = math.MaxInt

// encode returns the number of tokens of a piece, and calls token, if it is not
// nil, with the end of each in order.
func (v vocabulary) encode(piece string, token func(end int)) int {
	if _, ok := v[piece]; ok {
		if token != nil {
			token(len(piece))
		}
		return 1
	}
	if len(piece) <= smallPiece {
		return v.encodeSmall(piece, token)
	}
	return v.encodeLarge(piece, token)
}

// encodeSmall joins the pair of the lowest rank, the first of equals, until none
// is left.
func (v vocabulary) encodeSmall(piece string, token func(end int)) int {
	type part struct{ start, rank int } // rank: of this part joined with the next
	var buffer [smallPiece + 1]part
	parts := buffer[:len(piece)+1]
	for i := range parts {
		parts[i] = part{i, noRank}
		if i+2 <= len(piece) {
			parts[i].rank = v.rank(piece[i : i+2])
		}
	}
	joined := func(i int) int {
		if i+3 >= len(parts) {
			return noRank
		}
		return v.rank(piece[parts[i].start:parts[i+3].start])
	}
	for {
		best := 0
		for i, p := range parts {
			if p.rank < parts[best].rank {
				best = i
			}
		}
		if parts[best].rank == noRank {
			break
		}
		parts[best].rank = joined(best)
		if best > 0 {
			parts[best-1].rank = joined(best - 1)
		}
		parts = append(parts[:best+1], parts[best+2:]...)
	}
	if token != nil {
		for _, p := range parts[1:] {
			token(p.start)
		}
	}
	return len(parts) - 1
}

// rank returns the rank of a token, or noRank.
func (v vocabulary) rank(s string) int {
	if rank, ok := v[s]; ok {
		return rank
	}
	return noRank
}

// encodeLarge does what encodeSmall does with a heap of the pairs, in time
// n log n, so that a long run of letters can't keep a processor busy for hours.
func (v vocabulary) encodeLarge(piece string, token func(end int)) int {
	n := len(piece)
	// end[i] is where the part that starts at i ends, or 0 when it was joined to
	// the part before it; start[e] is where the part that ends at e starts.
	end, start := make([]int, n), make([]int, n+1)
	for i := range n {
		end[i], start[i+1] = i+1, i
	}
	queue := make(pairs, 0, n)
	add := func(from int) {
		if next := end[from]; next < n {
			if to := end[next]; to-from <= maxTokenBytes {
				if rank := v.rank(piece[from:to]); rank != noRank {
					queue.push(pair{rank, from, next, to})
				}
			}
		}
	}
	for i := range n {
		add(i)
	}
	tokens := n
	for len(queue) > 0 {
		p := queue.pop()
		if end[p.start] != p.middle || end[p.middle] != p.end {
			continue // one of the two was joined to another part meanwhile
		}
		tokens--
		end[p.start], end[p.middle], start[p.end] = p.end, 0, p.start
		add(p.start)
		if p.start > 0 {
			add(start[p.start])
		}
	}
	if token != nil {
		for i := 0; i < n; i = end[i] {
			token(end[i])
		}
	}
	return tokens
}

// pair is two parts side by side that are a token together.
type pair struct{ rank, start, middle, end int }

func (p pair) before(q pair) bool {
	return p.rank < q.rank || p.rank == q.rank && p.start < q.start
}

// pairs is a binary heap, without the interface calls of container/heap.
type pairs []pair

func (h *pairs) push(p pair) {
	*h = append(*h, p)
	q := *h
	for i := len(q) - 1; i > 0; {
		up := (i - 1) / 2
		if !q[i].before(q[up]) {
			return
		}
		q[i], q[up] = q[up], q[i]
		i = up
	}
}

func (h *pairs) pop() pair {
	q := *h
	top, last := q[0], len(q)-1
	q[0] = q[last]
	q = q[:last]
	*h = q
	for i := 0; ; {
		down := 2*i + 1
		if down >= len(q) {
			return top
		}
		if down+1 < len(q) && q[down+1].before(q[down]) {
			down++
		}
		if !q[down].before(q[i]) {
			return top
		}
		q[i], q[down] = q[down], q[i]
		i = down
	}
}
