//go:build unix

package bolt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/backend"
)

func TestFileThatIsRemovedOrReplaced(t *testing.T) {
	path := testPath(t)
	c := openTest(t, path, nil)
	require.NoError(t, c.SetMany(ctxb, testItems(0, 1, 'a')))
	require.NoError(t, os.Remove(path))
	err := c.SetMany(ctxb, testItems(1, 1, 'a'))
	require.ErrorIs(t, err, backend.ErrUnavailable, "an acknowledged entry would be gone with the handle")
	require.ErrorContains(t, err, "removed or replaced")
	require.Len(t, readAll(t, c, testKeys(2)), 1)

	other := openTest(t, path, nil)
	require.ErrorContains(t, c.SetMany(ctxb, testItems(1, 1, 'a')), "removed or replaced")
	_, err = c.Delete(ctxb, testKeys(1), nil)
	require.ErrorContains(t, err, "removed or replaced")
	require.NoError(t, other.SetMany(ctxb, testItems(2, 1, 'a')))
	require.NoError(t, c.Close())
	require.Len(t, readAll(t, other, testKeys(5)), 1)
}

// TestFileThatIsTruncated: without a guard this ends the process by SIGBUS.
func TestFileThatIsTruncated(t *testing.T) {
	items := wideItems(0, 200)
	for _, keep := range []int64{0, 1, 4096, 2 * 4096, 40 * 4096, 200 * 4096} {
		path := testPath(t)
		c := openTest(t, path, nil)
		require.NoError(t, c.SetMany(ctxb, items))
		require.NoError(t, os.Truncate(path, keep))
		visits := 0
		err := c.GetMany(ctxb, testKeys(200), func(i int, value []byte) error {
			visits++
			if string(value) != string(items[i].Value) {
				return errors.New("another value")
			}
			return nil
		})
		require.ErrorIs(t, err, backend.ErrCorrupt)
		require.ErrorContains(t, err, path)
		require.Less(t, visits, 200)
		require.ErrorIs(t, c.SetMany(ctxb, items), backend.ErrCorrupt)
		_, err = c.Delete(ctxb, testKeys(5), nil)
		require.ErrorIs(t, err, backend.ErrCorrupt)
		_, err = c.Delete(ctxb, testKeys(200), func(int, []byte) bool { return true })
		require.ErrorIs(t, err, backend.ErrCorrupt)
		_, err = c.Stats(ctxb)
		require.ErrorIs(t, err, backend.ErrCorrupt)
		scanAll(t, c, backend.WholeValue, func(err error) { require.ErrorIs(t, err, backend.ErrCorrupt) })
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, keep, info.Size(), "the hole is not filled")
		require.NoError(t, c.Close())
	}
}

func TestSpecialFileIsRefused(t *testing.T) {
	path := testPath(t)
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	_, err := Open(path, nil)
	require.ErrorIs(t, err, backend.ErrCorrupt)
}

func init() {
	// quota PATH fills the cache under a limit on the size of files, and goes on
	// when the limit is gone.
	children["quota"] = func(args []string) error {
		c, err := Open(args[0], nil)
		if err != nil {
			return err
		}
		var old syscall.Rlimit
		if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
			return err
		}
		limit := old
		limit.Cur = 20 << 20 // the file grows by 16 MiB
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
			return err
		}
		stored, err := fillUp(c)
		if !errors.Is(err, backend.ErrUnavailable) || stored == 0 {
			return fmt.Errorf("after %d batches: %w", stored, err)
		}
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
			return err
		}
		if err := checkFilled(c, stored); err != nil {
			return err
		}
		return c.Close()
	}
	// unprivileged PATH becomes a user who owns nothing, and reads.
	children["unprivileged"] = func(args []string) error {
		if os.Getuid() == 0 {
			if err := syscall.Setuid(65534); err != nil {
				return err
			}
		}
		_, err := Open(args[0], nil)
		if !errors.Is(err, backend.ErrReadOnly) {
			return fmt.Errorf("opened for writing: %w", err)
		}
		fmt.Println(err)
		_, err = Open(filepath.Join(filepath.Dir(args[0]), "new.db"), nil)
		if !errors.Is(err, backend.ErrReadOnly) {
			return fmt.Errorf("created in a read-only directory: %w", err)
		}
		c, err := Open(args[0], &Options{ReadOnly: true})
		if err != nil {
			return err
		}
		n := 0
		err = c.GetMany(context.Background(), testKeys(3), func(int, []byte) error { n++; return nil })
		if err != nil || n != 3 {
			return fmt.Errorf("%d of 3: %w", n, err)
		}
		return c.Close()
	}
}

// fillUp stores batches until one fails.
func fillUp(c *Cache) (stored int, err error) {
	for err == nil && stored < 10_000 {
		if err = c.SetMany(context.Background(), wideItems(stored*256, 256)); err == nil {
			stored++
		}
	}
	return stored, err
}

// checkFilled checks that stored batches are there, nothing of the next one, and
// that there is room for that now.
func checkFilled(c *Cache, stored int) error {
	for _, want := range []int{stored * 256, (stored + 1) * 256} {
		n := 0
		err := c.GetMany(context.Background(), testKeys((stored+1)*256), func(i int, value []byte) error {
			n++
			if i >= want || len(value) != 6009 {
				return fmt.Errorf("entry %d of %d bytes", i, len(value))
			}
			return nil
		})
		if err != nil || n != want {
			return fmt.Errorf("%d of %d entries: %w", n, want, err)
		}
		if err := c.SetMany(context.Background(), wideItems(stored*256, 256)); err != nil {
			return fmt.Errorf("with room again: %w", err)
		}
	}
	return nil
}

func TestLimitOnTheSizeOfFiles(t *testing.T) {
	require.Empty(t, startChild(t, "quota", testPath(t)).end(t))
}

func TestWithoutTheRightToWrite(t *testing.T) {
	// Not in t.TempDir: another user must get there.
	dir, err := os.MkdirTemp("", "embedonce")
	require.NoError(t, err)
	defer func() {
		require.NoError(t, os.Chmod(dir, 0o700))
		require.NoError(t, os.RemoveAll(dir))
	}()
	path := filepath.Join(dir, "vectors.db")
	c := openTest(t, path, nil)
	require.NoError(t, c.SetMany(ctxb, testItems(0, 3, 'a')))
	require.NoError(t, c.Close())
	binary := filepath.Join(dir, "test")
	copyFile(t, os.Args[0], binary, 0o755)

	require.NoError(t, os.Chmod(path, 0o444))
	require.NoError(t, os.Chmod(dir, 0o555))
	said := startBinary(t, binary, "unprivileged", path).end(t)
	require.Contains(t, said, path)
}

func copyFile(t *testing.T, from, to string, mode os.FileMode) {
	t.Helper()
	in, err := os.Open(from)
	require.NoError(t, err)
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, mode)
	require.NoError(t, err)
	_, err = io.Copy(out, in)
	require.NoError(t, err)
	require.NoError(t, out.Close())
	require.NoError(t, os.Chmod(to, mode))
}
