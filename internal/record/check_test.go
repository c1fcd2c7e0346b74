package record

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// ours is what a lookup for the origin of these tests would ask.
func ours(digest *[32]byte, scope *[8]byte) Reason {
	switch o := origin(); {
	case *digest != o.Digest:
		return Digest
	case *scope != o.Scope:
		return Scope
	}
	return Valid
}

// glance is Glance at a whole value.
func glance(value []byte) (uint32, Reason) {
	return Glance(value[:min(HeaderSize, len(value))], len(value))
}

// requireAgreement fails unless Check and Glance say of value what a lookup that
// expects no dimensions does.
func requireAgreement(t *testing.T, value []byte) {
	t.Helper()
	looked := look(value, 0)
	require.Equal(t, looked, Check(value, ours))
	created, glanced := glance(value)
	_, shaped := Shape(value, 0)
	switch {
	case len(value) >= HeaderSize && string(value[:4]) == magic && value[offVersion] > Version:
		require.Equal(t, Future, glanced)
		require.Contains(t, []Reason{Future, WrongVersion}, shaped)
	default:
		require.Equal(t, shaped, glanced)
	}
	if glanced == Valid {
		require.Equal(t, binary.LittleEndian.Uint32(value[offCreated:]), created)
	} else {
		require.Zero(t, created)
	}
}

func TestCheckAndGlanceAgreeWithALookup(t *testing.T) {
	requireAgreement(t, nil)
	requireAgreement(t, []byte("a value of some other program that shares the store with this one, long enough"))
	for _, value := range [][]byte{sealed(1, 2, 3), sealed(1, float32(math.NaN())), sealed(float32(math.Inf(1)))} {
		for n := range len(value) + 1 {
			requireAgreement(t, value[:n])
		}
		for bit := range 8 * len(value) {
			changed := append([]byte(nil), value...)
			changed[bit/8] ^= 1 << (bit % 8)
			requireAgreement(t, changed)
			Seal(changed)
			requireAgreement(t, changed)
		}
	}
}

func TestGlanceNeedsTheHeaderAlone(t *testing.T) {
	value := sealed(1, 2, 3)
	created, reason := Glance(value[:HeaderSize], len(value))
	require.Equal(t, Valid, reason)
	require.Equal(t, uint32(origin().Created.Unix()), created)
	_, reason = Glance(value[:HeaderSize], len(value)+1)
	require.Equal(t, Length, reason)
	_, reason = Glance(nil, -1)
	require.Equal(t, Unreadable, reason)
	_, reason = Glance(value[:HeaderSize-1], len(value))
	require.Equal(t, Unreadable, reason)
}

// FuzzCheck compares Check and Glance with a lookup on bytes of any kind, as they
// are and past the checksum.
func FuzzCheck(f *testing.F) {
	f.Add(sealed(1, 2, 3))
	f.Add(sealed(1, 2, 3)[:70])
	f.Add(sealed(float32(math.Inf(-1)), 0))
	f.Add([]byte{})
	later := sealed(1, 2)
	later[offVersion] = 2
	f.Add(later)
	f.Fuzz(func(t *testing.T, value []byte) {
		requireAgreement(t, value)
		if len(value) >= HeaderSize {
			whole := append([]byte(nil), value...)
			Seal(whole)
			requireAgreement(t, whole)
		}
	})
}
