package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// content is an endless stream of bytes from a seed. Each part can be computed without the parts before it,
// so that no body is kept in memory.
type content uint64

// fill writes the bytes from offset into part.
func (c content) fill(part []byte, offset int64) {
	var word [8]byte
	for len(part) > 0 {
		binary.LittleEndian.PutUint64(word[:], mix(uint64(c)+uint64(offset>>3)*0x9e3779b97f4a7c15))
		taken := copy(part, word[offset&7:])
		part = part[taken:]
		offset += int64(taken)
	}
}

// mix is the finalizer of SplitMix64.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// verifier compares a body with its content as it arrives.
type verifier struct {
	content content
	size    int64
	offset  int64
	wanted  []byte
}

// take verifies the next bytes of the body.
func (v *verifier) take(part []byte) error {
	if v.offset+int64(len(part)) > v.size {
		return fmt.Errorf("body has %d bytes or more instead of %d", v.offset+int64(len(part)), v.size)
	}
	if cap(v.wanted) < len(part) {
		v.wanted = make([]byte, len(part))
	}
	wanted := v.wanted[:len(part)]
	v.content.fill(wanted, v.offset)
	if !bytes.Equal(part, wanted) {
		at := 0
		for part[at] == wanted[at] {
			at++
		}
		return fmt.Errorf("body differs at byte %d of %d: got %x instead of %x%s", v.offset+int64(at), v.size,
			head(part[at:]), head(wanted[at:]), v.shifted(part[at:], v.offset+int64(at)))
	}
	v.offset += int64(len(part))
	return nil
}

// shifted searches the content for the wrong bytes and returns their position.
func (v *verifier) shifted(part []byte, offset int64) string {
	if len(part) < 8 {
		return ""
	}
	whole := make([]byte, v.size)
	v.content.fill(whole, 0)
	if at := bytes.Index(whole, part[:8]); at >= 0 {
		return fmt.Sprintf("; these bytes belong to byte %d, a shift of %d", at, int64(at)-offset)
	}
	return "; these bytes belong to another body"
}

// end verifies that the body is complete.
func (v *verifier) end() error {
	if v.offset != v.size {
		return fmt.Errorf("body ends after %d of %d bytes", v.offset, v.size)
	}
	return nil
}

func head(part []byte) []byte { return part[:min(len(part), 16)] }
