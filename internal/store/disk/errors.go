// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"github.com/nebulaio/nebulaio/internal/object"
)

func noBucket(op, name string) error { return object.Fail(op, name, object.ErrNoSuchBucket, "") }

func noKey(op, key, msg string) error { return object.Fail(op, key, object.ErrNoSuchKey, msg) }
