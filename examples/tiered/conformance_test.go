package main

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/backend/bolt"
	"github.com/embedonce/embedonce/backend/memory"
	"github.com/embedonce/embedonce/backend/sqlite"
	"github.com/embedonce/embedonce/backend/tiered"
	"github.com/embedonce/embedonce/conformance"
)

const maxValueBytes = 64 << 20 // of sqlite and of bolt

// The combinations that docs/backends.md names, each a store in a directory.
func suite(fast, slow func(t testing.TB, dir string) backend.Cache, want backend.Info, opts *tiered.Options) conformance.Suite {
	want.Atomic, want.Durability, want.MaxValueBytes = true, backend.SurvivesPowerLoss, maxValueBytes
	return conformance.Suite{
		New: func(t testing.TB) string { return newPlace(t, t.TempDir()) },
		Open: func(t testing.TB, location string) backend.Cache {
			at := placeAt(location)
			below := slow(t, location) // first: bolt refuses a second handle
			c, err := tiered.New(fastLayer{fast(t, location), at}, at.below(below), opts)
			require.NoError(t, err)
			return c
		},
		Want:  want,
		Plant: plant,
		Fault: inject,
	}
}

func openMemory(t testing.TB, _ string) backend.Cache {
	c, err := memory.New(&memory.Options{MaxBytes: 64 << 20})
	require.NoError(t, err)
	return c
}

func openSQLite(t testing.TB, dir string) backend.Cache {
	c, err := sqlite.Open(filepath.Join(dir, "sqlite.db"), &sqlite.Options{BusyTimeout: 500 * time.Millisecond})
	require.NoError(t, err)
	return c
}

func openBolt(t testing.TB, dir string) backend.Cache {
	c, err := bolt.Open(filepath.Join(dir, "bolt.db"), &bolt.Options{LockTimeout: 500 * time.Millisecond})
	require.NoError(t, err)
	return c
}

func memoryOverSQLite() conformance.Suite {
	return suite(openMemory, openSQLite, backend.Info{Reach: backend.ReachHost, Copies: true}, nil)
}

func TestConformanceMemoryOverSQLite(t *testing.T) { memoryOverSQLite().Run(t) }
func TestSoakMemoryOverSQLite(t *testing.T)        { memoryOverSQLite().Soak(t) }

// With a maximum age every case passes, after that age.
func TestConformanceMemoryOverSQLiteWithMaxAge(t *testing.T) {
	const age = 50 * time.Millisecond
	suite(openMemory, openSQLite, backend.Info{Reach: backend.ReachHost, Lag: age}, &tiered.Options{MaxAge: age}).Run(t)
}

func memoryOverBolt() conformance.Suite { return suite(openMemory, openBolt, backend.Info{}, nil) }
func sqliteOverBolt() conformance.Suite { return suite(openSQLite, openBolt, backend.Info{}, nil) }

func TestConformanceMemoryOverBolt(t *testing.T) { memoryOverBolt().Run(t) }
func TestSoakMemoryOverBolt(t *testing.T)        { memoryOverBolt().Soak(t) }
func TestConformanceSQLiteOverBolt(t *testing.T) { sqliteOverBolt().Run(t) }
func TestSoakSQLiteOverBolt(t *testing.T)        { sqliteOverBolt().Soak(t) }
