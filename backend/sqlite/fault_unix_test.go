//go:build unix

package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/backend"
)

func TestFileThatIsRemovedOrReplaced(t *testing.T) {
	path := testPath(t)
	c := openTest(t, path, nil)
	require.NoError(t, c.SetMany(ctxb, testItems(0, 1, 'a')))
	for _, suffix := range []string{"", "-wal", "-shm"} {
		require.NoError(t, os.Remove(path+suffix))
	}
	err := c.SetMany(ctxb, testItems(1, 1, 'a'))
	require.ErrorIs(t, err, backend.ErrUnavailable, "an acknowledged entry would be gone with the handle")
	require.ErrorContains(t, err, "removed or replaced")

	other := openTest(t, path, nil)
	require.ErrorContains(t, c.SetMany(ctxb, testItems(1, 1, 'a')), "removed or replaced")
	require.NoError(t, other.SetMany(ctxb, testItems(2, 1, 'a')))
	require.NoError(t, c.Close())
	require.Len(t, readAll(t, other, testKeys(5)), 1)
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
		limit.Cur = 2 << 20
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
		if !errors.Is(err, backend.ErrReadOnly) && !errors.Is(err, backend.ErrUnavailable) {
			return fmt.Errorf("opened for writing: %w", err)
		}
		fmt.Println(err)
		_, err = Open(filepath.Join(filepath.Dir(args[0]), "new.db"), nil)
		if !errors.Is(err, backend.ErrReadOnly) {
			return fmt.Errorf("created in a read-only directory: %w", err)
		}
		_, err = Open(args[0], &Options{ReadOnly: true})
		if !errors.Is(err, backend.ErrUnavailable) || !strings.Contains(err.Error(), "Options.Immutable") {
			return fmt.Errorf("opened without a place for locks: %w", err)
		}
		c, err := Open(args[0], &Options{Immutable: true})
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
	for err == nil && stored < 1000 {
		if err = c.SetMany(context.Background(), wideItems(stored*32, 32)); err == nil {
			stored++
		}
	}
	return stored, err
}

// checkFilled checks that stored batches are there, nothing of the next one, and
// that there is room for that now.
func checkFilled(c *Cache, stored int) error {
	for _, want := range []int{stored * 32, (stored + 1) * 32} {
		n := 0
		err := c.GetMany(context.Background(), testKeys((stored+1)*32), func(i int, value []byte) error {
			n++
			if i >= want || len(value) != 6009 {
				return fmt.Errorf("entry %d of %d bytes", i, len(value))
			}
			return nil
		})
		if err != nil || n != want {
			return fmt.Errorf("%d of %d entries: %w", n, want, err)
		}
		if err := c.SetMany(context.Background(), wideItems(stored*32, 32)); err != nil {
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

	// The file alone: the directory takes NAME-wal and NAME-shm.
	require.NoError(t, os.Chmod(dir, 0o777))
	said = startBinary(t, binary, "readonlyfile", path).end(t)
	require.Contains(t, said, path)
}

func init() {
	children["readonlyfile"] = func(args []string) error {
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
		c, err := Open(args[0], &Options{ReadOnly: true})
		if err != nil {
			return err
		}
		return c.Close()
	}
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
