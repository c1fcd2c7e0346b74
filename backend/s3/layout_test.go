package s3

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/stretchr/testify/require"
)

func TestIndexCache(t *testing.T) {
	s := newStore(t, fakeServer(t))
	items := testItems(0, 200, 100, 'a')
	c := s.open(t, nil)
	for i := range 20 {
		require.NoError(t, c.SetMany(ctxb, items[i*10:i*10+10]))
	}
	dir := filepath.Join(t.TempDir(), "index")
	o := testOptions(s.proxy)
	o.IndexCache = dir
	first := s.open(t, o)
	require.EqualValues(t, 20, first.Counters().Gets)
	second := s.open(t, o)
	require.Zero(t, second.Counters().Gets)
	requireStored(t, second, items)
	// Damaged, cut and empty files are read from the store again.
	files, err := filepath.Glob(filepath.Join(dir, "*", "s-*"))
	require.NoError(t, err)
	require.Len(t, files, 20)
	for i, f := range files {
		b, err := os.ReadFile(f)
		require.NoError(t, err)
		if b[len(b)/2] ^= 1; i%2 == 0 {
			b = b[:len(b)*i/20]
		}
		require.NoError(t, os.WriteFile(f, b, 0o600))
	}
	third := s.open(t, o)
	require.EqualValues(t, 20, third.Counters().Gets)
	requireStored(t, third, items)
	// What is gone from the store goes from here.
	compactor := testOptions(s.proxy)
	compactor.Grace = 1
	last := s.open(t, compactor)
	require.NoError(t, last.Compact(ctxb))
	eventuallyCompact(t, s, last, 1)
	require.EqualValues(t, 1, s.open(t, o).Counters().Segments)
	files, err = filepath.Glob(filepath.Join(dir, "*", "*-*"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	_, err = s.tryOpen(&Options{Endpoint: s.URL, Credentials: testCredentials, IndexCache: filepath.Join(files[0], "x")})
	require.ErrorContains(t, err, "IndexCache")
}

// eventuallyCompact compacts until the store has n objects: the server's clock has to
// move on, and tells seconds.
func eventuallyCompact(t testing.TB, s *store, c *Cache, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		require.NoError(t, c.Compact(ctxb))
		return len(s.names(t)) == n
	}, 20*time.Second, 100*time.Millisecond, "%v", s.names(t))
}

// TestEncryptionIsAskedFor, and nothing but plain headers is sent.
func TestRequestHeaders(t *testing.T) {
	s := newStore(t, fakeServer(t))
	o := testOptions(s.proxy)
	o.Encryption, o.KMSKeyID = "aws:kms", "alias/mine"
	c := s.open(t, o)
	var seen http.Header
	var length int64
	s.set(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		if r.Method == http.MethodPut {
			seen, length = r.Header.Clone(), r.ContentLength
		}
		pass.ServeHTTP(w, r)
	})
	require.NoError(t, c.SetMany(ctxb, testItems(0, 3, 10, 'a')))
	s.set(nil)
	require.Equal(t, "aws:kms", seen.Get("x-amz-server-side-encryption"))
	require.Equal(t, "alias/mine", seen.Get("x-amz-server-side-encryption-aws-kms-key-id"))
	require.Empty(t, seen.Get("Content-Encoding"), "no aws-chunked")
	require.Empty(t, seen.Get("x-amz-trailer"))
	require.Empty(t, seen.Get("If-None-Match"), "not in the first try")
	body, err := s.raw().readRange(ctxb, s.names(t)[0], 0, uint64(length))
	require.NoError(t, err)
	require.Equal(t, aws.ToString(checksum(body)), seen.Get("x-amz-checksum-crc32c"))
}
