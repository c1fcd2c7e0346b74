package bolt

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/backend"
)

// TestFullDisk fills a file system of its own. Who may not mount one has
// TestFullStore and TestLimitOnTheSizeOfFiles, which need no rights.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=40m"); err != nil {
		t.Skipf("no right to mount a small file system (%v); the other tests of a full store cover bbolt's side", err)
	}
	defer func() { require.NoError(t, syscall.Unmount(dir, 0)) }()
	ballast := filepath.Join(dir, "ballast")
	require.NoError(t, os.WriteFile(ballast, make([]byte, 10<<20), 0o600))

	path := filepath.Join(dir, "vectors.db")
	c, err := Open(path, nil)
	require.NoError(t, err)
	stored, err := fillUp(c)
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.ErrorContains(t, err, path)
	require.ErrorContains(t, err, "full")
	require.Positive(t, stored)
	require.Len(t, readAll(t, c, testKeys((stored+1)*256)), stored*256)

	// It can be closed and opened with a full disk.
	require.NoError(t, c.Close())
	c, err = Open(path, nil)
	require.NoError(t, err)
	require.Len(t, readAll(t, c, testKeys((stored+1)*256)), stored*256)

	require.NoError(t, os.Remove(ballast))
	require.NoError(t, checkFilled(c, stored))
	require.NoError(t, c.Close())
	checkWhole(t, path)
}

// TestSyncThatFails puts another file under bbolt's descriptor, which takes all
// that is written and can't be synced. The file must be opened again then: bbolt
// doesn't know what is in it.
func TestSyncThatFails(t *testing.T) {
	path := testPath(t)
	c := openTest(t, path, nil)
	require.NoError(t, c.SetMany(ctxb, testItems(0, 5, 'a')))
	old := c.openedStore()
	c.hooks.Store(&hooks{commit: func() error {
		c.hooks.Store(nil)
		null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
		if err != nil {
			t.Error(err)
			return nil
		}
		if err := syscall.Dup3(int(null.Fd()), int(old.file.Fd()), syscall.O_CLOEXEC); err != nil {
			t.Error(err)
		}
		if err := null.Close(); err != nil {
			t.Error(err)
		}
		return nil
	}})
	err := c.SetMany(ctxb, testItems(0, 10, 'b'))
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.ErrorContains(t, err, path)
	require.NotSame(t, old, c.openedStore())
	got := readAll(t, c, testKeys(10))
	require.Len(t, got, 5)
	require.Equal(t, testValue(1, 'a'), got[1])
	require.NoError(t, c.SetMany(ctxb, testItems(0, 10, 'c')))
	require.Len(t, readAll(t, c, testKeys(10)), 10)
	require.NoError(t, c.Close())
	checkWhole(t, path)
}

func init() {
	// smallspace PATH uses the cache with little room in the address space.
	children["smallspace"] = func(args []string) error {
		limit := syscall.Rlimit{Cur: 4 << 30, Max: 4 << 30}
		if err := syscall.Setrlimit(syscall.RLIMIT_AS, &limit); err != nil {
			return err
		}
		_, err := Open(args[0], &Options{MapBytes: 1 << 40})
		if err == nil {
			return fmt.Errorf("what the user asks for is not to be had, and no error")
		}
		c, err := Open(args[0], nil)
		if err != nil {
			return err
		}
		for i := range 10 {
			if err := c.SetMany(ctxb, wideItems(256*i, 256)); err != nil {
				return err
			}
		}
		return c.Close()
	}
}
