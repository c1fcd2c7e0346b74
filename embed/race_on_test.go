//go:build race

package embed_test

// raceEnabled: a sync.Pool drops a part of what it is given at random then.
const raceEnabled = true
