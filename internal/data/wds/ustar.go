// SPDX-License-Identifier: Apache-2.0

package wds

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxName is the most bytes of a name that a Writer accepts.
const maxName = 64 << 10

// ustar returns a header as Python's tarfile writes it, with the time 0. Fields for devices stay empty.
func ustar(name string, size int64, kind byte, mode int, user string) (b [block]byte) {
	copy(b[:100], ascii(name))
	copy(b[100:], fmt.Sprintf("%07o\x00%07o\x00%07o\x00%011o\x00%011o\x00        %c", mode, 0, 0, size, 0, kind))
	copy(b[257:], "ustar\x0000")
	copy(b[265:297], user)
	copy(b[297:329], user)
	sum, _ := sums(b[:])
	copy(b[148:], fmt.Sprintf("%06o\x00", sum))
	return b
}

// needsPAX reports whether a name does not fit into the header.
func needsPAX(name string) bool { return len(name) > 100 || ascii(name) != name }

// ascii returns a name with a question mark for each character that is not ASCII.
func ascii(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= utf8.RuneSelf {
			return '?'
		}
		return r
	}, name)
}

// wrongName returns why a Writer refuses a name and what to do, or "". All refused names would be read back
// differently, or not at all, by webdataset or when tar unpacks them.
func wrongName(key, ext string) (why, fix string) {
	name := key + "." + ext
	slash := strings.LastIndexByte(key, '/') + 1
	stem := key[slash:]
	back, suffix, ok := split(name)
	switch {
	case key == "":
		return "the key is empty", "give each sample a key, such as its number"
	case ext == "":
		return "the extension of a part is empty", "give the part an extension, such as bin"
	case stem == "":
		return "the key ends with a slash", "put a name after the last slash"
	case !utf8.ValidString(name):
		return fmt.Sprintf("the name %.200q is not UTF-8", name), "use a name in UTF-8"
	case strings.IndexByte(name, 0) >= 0:
		return fmt.Sprintf("the name %.200q has a NUL", name), "remove the NUL"
	case strings.IndexByte(stem, '.') >= 0:
		return "the key has a dot after its last slash, and readers would end the key there",
			fmt.Sprintf("replace the dots, for example by %.200q", key[:slash]+strings.ReplaceAll(stem, ".", "_"))
	case strings.IndexByte(ext, '/') >= 0:
		return fmt.Sprintf("the extension %.200q has a slash, and readers would drop the part", ext),
			"put folders into the key"
	case ext != lower(ext):
		return fmt.Sprintf("the extension %.200q is not in lower case", ext), fmt.Sprintf("use %.200q", lower(ext))
	case isMetadata(name):
		return fmt.Sprintf("readers skip the name %.200q, because its first part begins and ends with two underscores", name),
			"use another name: names such as __x__ are for metadata"
	case strings.HasPrefix(ext, "__") && strings.HasSuffix(ext, "__"):
		return fmt.Sprintf("webdataset reserves the extension %.200q", ext),
			"use an extension without underscores at both ends"
	case key[0] == '/' || slices.Contains(strings.Split(key, "/"), ".."):
		return "the key begins with a slash or leads out of its folder", "use a key relative to the folder of the data set"
	case len(name) > maxName:
		return fmt.Sprintf("the name has %d bytes, expected at most %d", len(name), maxName), "use a shorter name"
	case !ok || back != key || suffix != ext:
		return fmt.Sprintf("readers would not find key and extension in the name %.200q", name),
			"remove newlines from the key"
	}
	return "", ""
}
