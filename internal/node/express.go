// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"

	"github.com/nebulaio/nebulaio/internal/config"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/s3api"
)

const (
	// kindExpress is the kind of the record that holds the key of sessions.
	kindExpress = "express"
	// sessionKeyName is the name of that record.
	sessionKeyName = "session-key"
)

// expressOf returns the settings of directory buckets, or nil if the server has none. The key of sessions is made at
// the first start and kept in the store, so that sessions survive a restart.
func expressOf(ctx context.Context, c *config.Config, st object.Records) (*s3api.Express, error) {
	const op = "read the key of sessions"
	if !c.S3Express.Enabled {
		return nil, nil
	}
	key, err := st.Record(ctx, kindExpress, sessionKeyName)
	if errors.Is(err, object.ErrNoSuchRecord) {
		key = s3api.NewSessionKey()
		err = st.PutRecord(ctx, kindExpress, sessionKeyName, key)
		if errors.Is(err, object.ErrReadOnly) || errors.Is(err, object.ErrNoSpace) {
			err = nil // a store that is opened for reading gets a key that lasts as long as the process
		}
	}
	if err != nil {
		return nil, errs.Wrap(op, c.Data, err)
	}
	if len(key) != len(s3api.NewSessionKey()) {
		return nil, errs.New(errs.Corrupt, op, c.Data, "the record has another length").
			WithFix("stop the server and run nebulaio store check")
	}
	return &s3api.Express{Key: key, Zones: c.S3Express.Zones, Session: c.S3Express.Session}, nil
}
