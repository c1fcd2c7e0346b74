package bench

import (
	"context"
	"errors"

	"github.com/embedonce/embedonce/embed"
)

// WithClient calls f with a Client whose cache is a fresh copy of the store; both end
// with f. opts may be nil.
func (s *Store) WithClient(ctx context.Context, provider embed.Provider, opts *embed.Options, f func(client *embed.Client) error) (err error) {
	copied, err := s.Fresh(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, copied.Remove(ctx)) }()
	set := embed.Options{}
	if opts != nil {
		set = *opts
	}
	set.Cache = copied
	return WithClient(provider, &set, f)
}

// WithClient calls f with a Client, which ends with f.
func WithClient(provider embed.Provider, opts *embed.Options, f func(client *embed.Client) error) error {
	client, err := embed.New(provider, opts)
	if err != nil {
		return err
	}
	return errors.Join(f(client), client.Close())
}
