// SPDX-License-Identifier: Apache-2.0

package object

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// PartSeal describes an encrypted part before its encryption.
type PartSeal struct {
	Size int64
	CRC  uint64
	Salt []byte // random bytes that make the key of the part unique
}

// Text returns the value of the attribute AttrSealedPart.
func (p PartSeal) Text() string {
	return fmt.Sprintf("%d:%016x:%s", p.Size, p.CRC, hex.EncodeToString(p.Salt))
}

// ParsePartSeal reads a text that PartSeal.Text wrote.
func ParsePartSeal(text string) (PartSeal, error) {
	fields := strings.Split(text, ":")
	bad := errs.New(errs.Corrupt, "read metadata", "part",
		fmt.Sprintf("the attribute %s is %.80q, expected SIZE:CRC:SALT", AttrSealedPart, text))
	if len(fields) != 3 {
		return PartSeal{}, bad
	}
	size, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil || size < 0 {
		return PartSeal{}, bad
	}
	crc, err := strconv.ParseUint(fields[1], 16, 64)
	if err != nil {
		return PartSeal{}, bad
	}
	salt, err := hex.DecodeString(fields[2])
	if err != nil || len(salt) > 64 {
		return PartSeal{}, bad
	}
	return PartSeal{Size: size, CRC: crc, Salt: salt}, nil
}
