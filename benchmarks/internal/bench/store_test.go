package bench

import (
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/embed"
	"github.com/embedonce/embedonce/embed/embedtest"

	"github.com/embedonce/embedonce/benchmarks/internal/floor"
)

func startRun(t *testing.T, s Settings) *Run {
	t.Helper()
	s.Scenario = "test"
	if s.Sink == nil {
		s.Sink = Lines{io.Discard}
	}
	r, err := Start(t.Context(), s)
	require.NoError(t, err)
	return r
}

// values returns what is stored under keys.
func values(t *testing.T, get func(keys []backend.Key, visit func(i int, value []byte)) error, keys []backend.Key) map[backend.Key]string {
	t.Helper()
	all := make(map[backend.Key]string)
	require.NoError(t, get(keys, func(i int, value []byte) { all[keys[i]] = string(value) }))
	return all
}

// For each backend: a copy has what the store has, what is written to one copy is in
// no other, the floor reads what the library wrote and the other way round, and
// nothing is left when all is closed.
func TestStoresAndTheirCopies(t *testing.T) {
	r := startRun(t, Settings{Quick: true})
	defer func() { require.NoError(t, r.End()) }()
	usable, err := r.Backends(t.Context(), BackendNames()...)
	require.NoError(t, err)
	for _, b := range usable {
		t.Run(b.Name, func(t *testing.T) {
			ctx := t.Context()
			old := []backend.Item{{Key: backend.Key{1}, Value: []byte("one")}, {Key: backend.Key{2}, Value: make([]byte, 6208)}}
			added := []backend.Item{{Key: backend.Key{3}, Value: []byte("three")}, {Key: backend.Key{4}, Value: []byte("four")}}
			keys := []backend.Key{{1}, {2}, {3}, {4}, {9}, {1}}
			// More than a chunk, of which one is stored.
			many := make([]backend.Key, 300)
			for i := range many {
				many[i] = backend.Key{0, byte(i), byte(i >> 8)}
			}
			many[299] = backend.Key{1}
			before := map[backend.Key]string{{1}: "one", {2}: string(old[1].Value)}
			after := map[backend.Key]string{{1}: "one", {2}: string(old[1].Value), {3}: "three", {4}: "four"}

			store, err := r.Prepare(ctx, b, func(c backend.Cache) error { return c.SetMany(ctx, old) })
			require.NoError(t, err)
			for range 2 {
				copied, err := store.Fresh(ctx)
				require.NoError(t, err)
				get := func(keys []backend.Key, visit func(int, []byte)) error {
					return copied.GetMany(ctx, keys, func(i int, value []byte) error {
						visit(i, value)
						return nil
					})
				}
				byHand, err := store.Floor(ctx)
				require.NoError(t, err)
				reader, err := byHand.Reader()
				require.NoError(t, err)

				require.Equal(t, before, values(t, get, keys))
				require.Equal(t, before, values(t, reader.Get, keys))
				require.Len(t, values(t, reader.Get, many), 1)
				require.NoError(t, copied.SetMany(ctx, added))
				require.NoError(t, byHand.Write(added))
				require.Equal(t, after, values(t, get, keys))
				require.Equal(t, after, values(t, reader.Get, keys))

				require.NoError(t, reader.Close())
				require.NoError(t, byHand.Remove(ctx))
				require.NoError(t, copied.Remove(ctx))
				requireGone(t, r, b, copied.Place)
			}
			require.NoError(t, store.Close(ctx))
			requireGone(t, r, b, store.place)
		})
	}
}

// requireGone fails if anything is left of a store, also on a server.
func requireGone(t *testing.T, r *Run, b *Backend, place string) {
	t.Helper()
	require.NoDirExists(t, place)
	if b.files {
		return
	}
	c, err := b.open(t.Context(), r, place)
	require.NoError(t, err)
	left, err := floor.Keys(t.Context(), c)
	require.NoError(t, err)
	require.Empty(t, left)
	require.NoError(t, c.Close())
}

// The floor of a hit does what a Client does: same keys, same records, same vectors.
func TestFloorOfHits(t *testing.T) {
	r := startRun(t, Settings{Quick: true})
	defer func() { require.NoError(t, r.End()) }()
	ctx := t.Context()
	const dims = 64
	texts := r.Texts(0, 20)
	usable, err := r.Backends(ctx, "memory")
	require.NoError(t, err)
	store, err := r.Prepare(ctx, usable[0], func(c backend.Cache) error { return Fill(ctx, c, LocalProvider(dims), texts) })
	require.NoError(t, err)
	byHand, err := store.Floor(ctx)
	require.NoError(t, err)
	reader, err := byHand.Reader()
	require.NoError(t, err)
	rows := make([]float32, len(texts)*dims)
	hits := floor.NewHits(reader, len(texts), dims)
	require.NoError(t, hits.Read(texts, rows))
	for i, text := range texts {
		require.True(t, embedtest.IsVectorOf(text, rows[i*dims:(i+1)*dims]))
	}
	require.ErrorContains(t, hits.Read(r.Texts(30, 2), rows), "found 0 of 2")
	for key, value := range byHand.Store.(floor.Map) {
		value[len(value)-1] ^= 1 // of each vector
		byHand.Store.(floor.Map)[key] = value
	}
	require.ErrorContains(t, hits.Read(texts, rows), "found 0 of 20")
	require.NoError(t, byHand.Remove(ctx))
	require.NoError(t, store.Close(ctx))
}

func TestServerAnswersInItsTime(t *testing.T) {
	r := startRun(t, Settings{Quick: true})
	defer func() { require.NoError(t, r.End()) }()
	const latency = 30 * time.Millisecond
	server := r.NewServer(8, latency)
	client, err := embed.New(server.Provider(), nil)
	require.NoError(t, err)
	defer client.Close()
	begun := time.Now()
	response, err := client.Embed(t.Context(), r.Texts(0, 16))
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(begun), latency)
	require.Equal(t, 16, response.Len())
	require.Equal(t, 8, response.Dimensions())
	require.Equal(t, 1, server.Requests())
}

func TestEndRemovesWhatARunMade(t *testing.T) {
	r := startRun(t, Settings{})
	dir, err := r.TempDir()
	require.NoError(t, err)
	require.DirExists(t, dir)
	var ended []int
	r.Cleanup(func() error { ended = append(ended, 1); return nil })
	r.Cleanup(func() error { ended = append(ended, 2); return os.ErrInvalid })
	require.ErrorIs(t, r.End(), os.ErrInvalid)
	require.Equal(t, []int{2, 1}, ended)
	require.NoDirExists(t, r.dir)
}

// skips keeps what was skipped.
type skips struct {
	Lines
	all []Skip
}

func (s *skips) Skip(skip Skip) error {
	s.all = append(s.all, skip)
	return nil
}

func TestABackendThatIsNotThereIsSkippedAndSaidSo(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	sink := &skips{Lines: Lines{io.Discard}}
	r := startRun(t, Settings{Sink: sink})
	defer func() { require.NoError(t, r.End()) }()
	for range 2 {
		usable, err := r.Backends(t.Context(), "memory", "redis")
		require.NoError(t, err)
		require.Len(t, usable, 1)
	}
	require.Len(t, sink.all, 1)
	require.Equal(t, "redis", sink.all[0].Backend)
	require.Contains(t, sink.all[0].Reason, "no redis-server")
}

func TestBackendsAreThoseThatTheUserWants(t *testing.T) {
	r := startRun(t, Settings{Backends: []string{"bolt", "sqlite"}})
	defer func() { require.NoError(t, r.End()) }()
	usable, err := r.Backends(t.Context(), "memory", "bolt")
	require.NoError(t, err)
	require.Len(t, usable, 1)
	require.Equal(t, "bolt", usable[0].Name)
}
