package embed

import (
	"fmt"
	"sync/atomic"
)

// budget bounds what a client may be billed. Tokens are reserved before a
// request is sent and settled when it is known what it cost.
type budget struct {
	limit int64 // 0 is no bound
	spent atomic.Int64
}

// reserve takes tokens, or returns an error that wraps ErrBudget.
func (b *budget) reserve(tokens int64) error {
	for b.limit > 0 {
		spent := b.spent.Load()
		if spent+tokens > b.limit {
			return fmt.Errorf("%w: %d of %d tokens are spent or reserved, the request may cost %d", ErrBudget, spent, b.limit, tokens)
		}
		if b.spent.CompareAndSwap(spent, spent+tokens) {
			break
		}
	}
	return nil
}

// settle replaces a reservation by what the request has cost.
func (b *budget) settle(reserved, cost int64) {
	if b.limit > 0 {
		b.spent.Add(cost - reserved)
	}
}
