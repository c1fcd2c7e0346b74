package record

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func origin() *Origin {
	o := &Origin{Flags: FlagLong, Created: time.Unix(1_800_000_000, 999)}
	for i := range o.Digest {
		o.Digest[i] = byte(i)
	}
	copy(o.Scope[:], "scope-12")
	return o
}

func sealed(vector ...float32) []byte { return Append(nil, vector, origin()) }

// look is what a client does with a value: Shape, then Load.
func look(value []byte, want int) Reason {
	dimensions, reason := Shape(value, want)
	if reason != Valid {
		return reason
	}
	o := origin()
	return Load(make([]float32, dimensions), value, &o.Digest, &o.Scope)
}

// A changed byte here is a changed layout: every cache in use becomes misses, and
// its users pay again.
func TestLayoutIsPinned(t *testing.T) {
	const want = "31656d62" + "01" + "01" + "0100" + "03000000" + "00d2496b" + "5fb5c5fef64ce871" +
		"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f" + "73636f70652d3132" +
		"0000803f" + "000000c0" + "0000003e"
	require.Equal(t, want, hex.EncodeToString(sealed(1, -2, 0.125)))
}

func TestRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 2, 3, 7, 8, 9, 255, 1536, 3072} {
		vector := make([]float32, n)
		for i := range vector {
			vector[i] = float32(r.NormFloat64())
		}
		before := []byte("what stood there")
		value := Append(before, vector, origin())[len(before):]
		require.Len(t, value, Size(n))
		dimensions, reason := Shape(value, n)
		require.Equal(t, Valid, reason)
		require.Equal(t, n, dimensions)
		got := make([]float32, n)
		o := origin()
		require.Equal(t, Valid, Load(got, value, &o.Digest, &o.Scope))
		require.Equal(t, vector, got)
		require.True(t, SameText(value, value))
	}
}

func TestReasonsInTheirOrder(t *testing.T) {
	edit := func(change func(v []byte)) []byte {
		v := sealed(1, 2, 3)
		change(v)
		return v
	}
	resealed := func(change func(v []byte)) []byte {
		return edit(func(v []byte) { change(v); Seal(v) })
	}
	put32 := binary.LittleEndian.PutUint32
	otherText := origin()
	otherText.Digest[31]++
	otherScope := origin()
	otherScope.Scope[7]++
	for _, c := range []struct {
		name  string
		value []byte
		want  Reason
	}{
		{"nil", nil, Unreadable},
		{"empty", []byte{}, Unreadable},
		{"shorter than a header", sealed(1, 2, 3)[:HeaderSize-1], Unreadable},
		{"another program's bytes", []byte("a value of some other program that shares the store with this one, long enough"), Magic},
		{"a whole record of a later version", resealed(func(v []byte) { v[offVersion] = 2 }), Future},
		{"a later version with other dimensions", resealed(func(v []byte) { v[offVersion] = 200; put32(v[offDimensions:], 9) }), Future},
		{"a later version, torn", edit(func(v []byte) { v[offVersion] = 2 }), WrongVersion},
		{"version 0", resealed(func(v []byte) { v[offVersion] = 0 }), WrongVersion},
		{"another element type", resealed(func(v []byte) { v[offElement] = 2 }), Element},
		{"other dimensions", sealed(1, 2), Dimensions},
		{"no dimensions", resealed(func(v []byte) { put32(v[offDimensions:], 0) }), Dimensions},
		{"absurd dimensions", resealed(func(v []byte) { put32(v[offDimensions:], math.MaxUint32) }), Dimensions},
		{"truncated body", sealed(1, 2, 3)[:HeaderSize+11], Length},
		{"header alone", sealed(1, 2, 3)[:HeaderSize], Length},
		{"trailing byte", append(sealed(1, 2, 3), 0), Length},
		{"a bit of the vector flipped", edit(func(v []byte) { v[HeaderSize+5] ^= 4 }), Checksum},
		{"another text", Append(nil, []float32{1, 2, 3}, otherText), Digest},
		{"another scope", Append(nil, []float32{1, 2, 3}, otherScope), Scope},
		{"NaN", sealed(1, float32(math.NaN()), 3), NotFinite},
		{"infinity", sealed(1, 2, float32(math.Inf(-1))), NotFinite},
		{"whole", sealed(1, 2, 3), Valid},
	} {
		require.Equal(t, c.want, look(c.value, 3), c.name)
		if c.want == Dimensions && c.name != "other dimensions" {
			require.Equal(t, Dimensions, look(c.value, 0), c.name+", any wanted")
		}
	}
}

func TestEveryFlippedBitIsSeen(t *testing.T) {
	value := sealed(1, 2, 3)
	for bit := range 8 * len(value) {
		torn := append([]byte(nil), value...)
		torn[bit/8] ^= 1 << (bit % 8)
		require.NotEqual(t, Valid, look(torn, 3), "bit %d", bit)
		require.NotEqual(t, Valid, look(torn, 0), "bit %d, any dimensions wanted", bit)
		require.False(t, SameText(torn, value), "bit %d", bit)
	}
	for n := range value {
		require.NotEqual(t, Valid, look(value[:n], 0), "the first %d bytes", n)
	}
}

func TestFiniteAgreesWithMath(t *testing.T) {
	special := []uint32{0, 1, 0x80000000, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7f800001, 0xffffffff, 0x7fc00000, 0x00800000, 0x3f800000}
	r := rand.New(rand.NewPCG(3, 4))
	for round := range 20_000 {
		v := make([]float32, r.IntN(20))
		want := true
		for i := range v {
			bits := r.Uint32() &^ (1 << 23) // hardly ever all ones by chance
			if r.IntN(30) == 0 {
				bits = special[r.IntN(len(special))]
			}
			v[i] = math.Float32frombits(bits)
			want = want && !math.IsNaN(float64(v[i])) && !math.IsInf(float64(v[i]), 0)
		}
		require.Equal(t, want, Finite(v), "round %d of seed 3, 4: %x", round, v)
	}
}

// The order of bytes in memory must not show in a record.
func TestOtherByteOrder(t *testing.T) {
	if !littleEndian {
		t.Skip("this machine has the other byte order: every test of this package runs it")
	}
	value := sealed(1, -2, 0.125)
	littleEndian = false
	defer func() { littleEndian = true }()
	require.Equal(t, value, sealed(1, -2, 0.125))
	require.Equal(t, Valid, look(value, 3))
	require.True(t, Finite([]float32{1}))
	require.False(t, Finite([]float32{float32(math.NaN())}))
	got := make([]float32, 3)
	o := origin()
	require.Equal(t, Valid, Load(got, value, &o.Digest, &o.Scope))
	require.Equal(t, []float32{1, -2, 0.125}, got)
}

// FuzzLook feeds bytes of any kind to the checks: they must neither panic nor
// take what Append would not have written.
func FuzzLook(f *testing.F) {
	f.Add(sealed(1, 2, 3), 3)
	f.Add(sealed(1, 2, 3), 0)
	f.Add(sealed(1, 2, 3)[:70], 0)
	f.Add([]byte{}, 1536)
	f.Add(sealed(float32(math.NaN())), 1)
	f.Fuzz(func(t *testing.T, value []byte, want int) {
		whole := append([]byte(nil), value...)
		if len(whole) >= HeaderSize {
			Seal(whole) // past the checksum, which a fuzzer can't guess
		}
		for _, v := range [][]byte{value, whole} {
			dimensions, reason := Shape(v, want)
			if reason != Valid {
				continue
			}
			o := origin()
			vector := make([]float32, dimensions)
			if Load(vector, v, &o.Digest, &o.Scope) != Valid {
				continue
			}
			seconds := binary.LittleEndian.Uint32(v[offCreated:])
			o.Created = time.Unix(int64(seconds), 0)
			o.Flags = binary.LittleEndian.Uint16(v[offFlags:])
			require.Equal(t, v, Append(nil, vector, o))
		}
	})
}

func BenchmarkLoad(b *testing.B) {
	const n, dimensions = 512, 1536
	values := make([][]byte, n)
	for i := range values {
		values[i] = Append(nil, make([]float32, dimensions), origin())
	}
	rows := make([]float32, n*dimensions)
	o := origin()
	b.ReportAllocs()
	b.SetBytes(int64(n * Size(dimensions)))
	for b.Loop() {
		for i, v := range values {
			if _, reason := Shape(v, dimensions); reason != Valid {
				b.Fatal(reason)
			}
			if reason := Load(rows[i*dimensions:(i+1)*dimensions], v, &o.Digest, &o.Scope); reason != Valid {
				b.Fatal(reason)
			}
		}
	}
}
