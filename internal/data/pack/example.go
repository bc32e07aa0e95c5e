// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"encoding/binary"
	"math/bits"
)

// This file encodes and decodes the tf.train.Example messages whose features are single byte strings:
//
//	message Example   { Features features = 1; }
//	message Features  { map<string, Feature> feature = 1; }
//	message Feature   { oneof kind { BytesList bytes_list = 1; ... } }
//	message BytesList { repeated bytes value = 1; }

// feature is a feature of an example.
type feature struct {
	name  string
	value []byte
}

// fieldOne and fieldTwo are the tags of the fields 1 and 2 with a length.
const (
	fieldOne = 1<<3 | 2
	fieldTwo = 2<<3 | 2
)

// sized returns the length of a field with n bytes: tag, length and content.
func sized(n int) int { return 1 + (bits.Len(uint(n)|1)+6)/7 + n }

// featureSizes returns the lengths of the messages around a value, from the inside to the outside.
func featureSizes(name string, value int) (list, feature, entry int) {
	list = sized(value)
	feature = sized(list)
	return list, feature, sized(len(name)) + sized(feature)
}

// exampleSize returns the length of the example of a sample.
func exampleSize(key string, parts []source) int64 {
	_, _, entry := featureSizes(keyColumn, len(key))
	total := sized(entry)
	for _, p := range parts {
		_, _, entry := featureSizes(p.ext, int(p.Size))
		total += sized(entry)
	}
	return int64(sized(total))
}

// appendExample appends an example. The order of features is that of the list.
func appendExample(b []byte, features []feature) []byte {
	total := 0
	for _, f := range features {
		_, _, entry := featureSizes(f.name, len(f.value))
		total += sized(entry)
	}
	field := func(tag byte, n int) { b = binary.AppendUvarint(append(b, tag), uint64(n)) }
	field(fieldOne, total) // Example.features
	for _, f := range features {
		list, one, entry := featureSizes(f.name, len(f.value))
		field(fieldOne, entry) // Features.feature
		field(fieldOne, len(f.name))
		b = append(b, f.name...)
		field(fieldTwo, one)
		field(fieldOne, list) // Feature.bytes_list
		field(fieldOne, len(f.value))
		b = append(b, f.value...)
	}
	return b
}

// parseExample returns the features of an example. The result ok is false if the record is no example, or if a feature
// is no single byte string. The values are slices of b.
func parseExample(b []byte) (features []feature, ok bool) {
	all, rest, ok := takeField(b, fieldOne)
	if !ok || len(rest) > 0 {
		return nil, false
	}
	for len(all) > 0 {
		var entry, name, one, list, value []byte
		if entry, all, ok = takeField(all, fieldOne); !ok {
			return nil, false
		}
		if name, entry, ok = takeField(entry, fieldOne); !ok {
			return nil, false
		}
		if one, rest, ok = takeField(entry, fieldTwo); !ok || len(rest) > 0 {
			return nil, false
		}
		if list, rest, ok = takeField(one, fieldOne); !ok || len(rest) > 0 {
			return nil, false
		}
		if value, rest, ok = takeField(list, fieldOne); !ok || len(rest) > 0 {
			return nil, false
		}
		features = append(features, feature{string(name), value})
	}
	return features, len(features) > 0
}

// takeField returns the content of the first field, which must have this tag, and the bytes after it.
func takeField(b []byte, tag byte) (content, rest []byte, ok bool) {
	if len(b) == 0 || b[0] != tag {
		return nil, nil, false
	}
	n, used := binary.Uvarint(b[1:])
	if used <= 0 || n > uint64(len(b)-1-used) {
		return nil, nil, false
	}
	b = b[1+used:]
	return b[:n], b[n:], true
}
