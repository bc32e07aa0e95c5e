// SPDX-License-Identifier: Apache-2.0

package tokens

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// charMap replaces characters as a compiled rule of SentencePiece says. The rule is a double-array trie whose values
// are places of texts in a list.
type charMap struct {
	units []uint32
	texts []byte // each ends with a zero byte
}

// shortCluster is the size from which a cluster of characters is replaced character by character.
const shortCluster = 6

// parsePrecompiled makes the normalizer Precompiled.
func parsePrecompiled(raw json.RawMessage) (normalizer, error) {
	var f struct {
		Type string
		Map  string `json:"precompiled_charsmap"`
	}
	if err := decode("normalizer", raw, &f, true); err != nil {
		return nil, err
	}
	blob, err := base64.StdEncoding.DecodeString(f.Map)
	if err != nil {
		return nil, corrupt("normalizer", fmt.Sprintf("precompiled_charsmap is not base64: %v", err))
	}
	if len(blob) < 4 {
		return nil, corrupt("normalizer", fmt.Sprintf("precompiled_charsmap has %d bytes, expected at least 4", len(blob)))
	}
	size := binary.LittleEndian.Uint32(blob)
	if blob = blob[4:]; size%4 != 0 || size == 0 || uint64(size) > uint64(len(blob)) {
		return nil, corrupt("normalizer", fmt.Sprintf(
			"precompiled_charsmap has a trie of %d bytes, expected a multiple of 4 "+"up to %d", size, len(blob)))
	}
	m := &charMap{units: make([]uint32, size/4), texts: blob[size:]}
	for i := range m.units {
		m.units[i] = binary.LittleEndian.Uint32(blob[4*i:])
	}
	if !utf8.Valid(m.texts) {
		return nil, corrupt("normalizer", "precompiled_charsmap has texts that are not UTF-8")
	}
	return m.normalize, nil
}

// normalize replaces the characters of a text.
func (m *charMap) normalize(text []byte, first bool) ([]byte, bool, error) {
	out := make([]byte, 0, len(text)+len(text)/8)
	state := -1
	for len(text) > 0 {
		var cluster []byte
		if text[0] < utf8.RuneSelf && text[0] != '\r' && (len(text) == 1 || text[1] < utf8.RuneSelf) {
			cluster, text, state = text[:1], text[1:], -1
		} else {
			cluster, text, _, state = uniseg.FirstGraphemeCluster(text, state)
		}
		if len(cluster) < shortCluster {
			if to, ok := m.replacement(cluster); ok {
				out = append(out, to...)
				continue
			}
		}
		for len(cluster) > 0 {
			_, n := utf8.DecodeRune(cluster)
			if to, ok := m.replacement(cluster[:n]); ok {
				out = append(out, to...)
			} else {
				out = append(out, cluster[:n]...)
			}
			cluster = cluster[n:]
		}
	}
	return out, first, nil
}

// replacement returns the text for the shortest key that chunk begins with, as the reference does, or false.
func (m *charMap) replacement(chunk []byte) ([]byte, bool) {
	offset := func(unit uint32) uint32 { return unit >> 10 << (unit & (1 << 9) >> 6) }
	at := offset(m.units[0])
	for _, b := range chunk {
		if b == 0 {
			break
		}
		if at ^= uint32(b); at >= uint32(len(m.units)) {
			return nil, false
		}
		unit := m.units[at]
		if unit&(1<<31|0xFF) != uint32(b) {
			return nil, false
		}
		if at ^= offset(unit); at >= uint32(len(m.units)) {
			return nil, false
		}
		if unit>>8&1 == 0 {
			continue
		}
		start := m.units[at] & (1<<31 - 1)
		if start > uint32(len(m.texts)) {
			return nil, false
		}
		to := m.texts[start:]
		if end := bytes.IndexByte(to, 0); end >= 0 {
			to = to[:end]
		}
		return to, true
	}
	return nil, false
}
