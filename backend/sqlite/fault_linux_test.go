package sqlite

import (
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
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=12m"); err != nil {
		t.Skipf("no right to mount a small file system (%v); the other tests of a full store cover SQLite's side", err)
	}
	defer func() { require.NoError(t, syscall.Unmount(dir, 0)) }()
	ballast := filepath.Join(dir, "ballast")
	require.NoError(t, os.WriteFile(ballast, make([]byte, 8<<20), 0o600))

	path := filepath.Join(dir, "vectors.db")
	c, err := Open(path, nil)
	require.NoError(t, err)
	stored, err := fillUp(c)
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.ErrorContains(t, err, path)
	require.ErrorContains(t, err, "full")
	require.Positive(t, stored)
	require.Len(t, readAll(t, c, testKeys((stored+1)*32)), stored*32)

	// Closing with a full disk loses nothing: the log stays until there is room.
	require.NoError(t, c.Close())
	c, err = Open(path, nil)
	require.NoError(t, err)
	require.Len(t, readAll(t, c, testKeys((stored+1)*32)), stored*32)

	require.NoError(t, os.Remove(ballast))
	require.NoError(t, checkFilled(c, stored))
	require.NoError(t, c.Close())
	require.NoFileExists(t, path+"-wal")
}
