// SPDX-License-Identifier: Apache-2.0

package wire

// Type is TypeHello.
func (*Hello) Type() Type { return TypeHello }
func (m *Hello) code(c *coder) {
	c.u16(&m.Min)
	c.u16(&m.Max)
	c.text(&m.Agent, MaxText)
}

// Type is TypeChallenge.
func (*Challenge) Type() Type { return TypeChallenge }
func (m *Challenge) code(c *coder) {
	c.u16(&m.Version)
	c.text(&m.Store, MaxName)
	c.raw(m.Nonce[:])
}

// Type is TypeProof.
func (*Proof) Type() Type { return TypeProof }
func (m *Proof) code(c *coder) {
	c.text(&m.AccessKey, MaxName)
	c.raw(m.Nonce[:])
	c.u8(&m.Binding.Kind)
	c.u64(&m.Binding.ID)
	c.raw(m.MAC[:])
}

// Type is TypeGreeting.
func (*Greeting) Type() Type { return TypeGreeting }
func (m *Greeting) code(c *coder) {
	c.raw(m.MAC[:])
	c.i64(&m.BufferPoolSize)
	c.i64(&m.MaxTransferSize)
	c.u32(&m.QueueDepth)
	c.bool(&m.Async)
	c.bool(&m.P2P)
	list(c, &m.Devices, MaxDevices, 4, "devices", c.u32)
	c.bool(&m.Writes)
	c.text(&m.WritesWhy, MaxText)
	c.u32(&m.MaxHandles)
	c.i64(&m.MaxDraft)
	c.span(&m.Idle)
	list(c, &m.Notes, MaxNotes, 4, "notes", func(n *string) { c.text(n, MaxText) })
}

func (d *Device) code(c *coder) {
	i := uint32(d.Index)
	if c.u32(&i); !c.writes {
		d.Index = int32(i)
	}
	c.text(&d.UUID, MaxName)
}

// Type is TypeOpen.
func (*Open) Type() Type { return TypeOpen }
func (m *Open) code(c *coder) {
	c.u8(&m.Want)
	m.Device.code(c)
	list(c, &m.Items, MaxItems, 28, "objects", func(i *OpenItem) {
		c.text(&i.Bucket, MaxName)
		c.text(&i.Key, MaxName)
		c.text(&i.Version, MaxName)
		c.i64(&i.Off)
		c.i64(&i.N)
	})
}

// Type is TypeOpened.
func (*Opened) Type() Type { return TypeOpened }
func (m *Opened) code(c *coder) {
	c.u32(&m.First)
	list(c, &m.Items, MaxItems, 1, "objects", func(i *OpenedItem) { i.code(c) })
}

func (i *OpenedItem) code(c *coder) {
	failed := i.Err != nil
	if c.bool(&failed); failed {
		if i.Err == nil {
			i.Err = &Error{}
		}
		i.Err.code(c)
		return
	}
	c.u64(&i.Handle)
	c.i64(&i.Size)
	c.text(&i.ETag, MaxName)
	c.u64(&i.CRC64)
	c.text(&i.Version, MaxName)
	c.time(&i.Modified)
	c.i64(&i.Off)
	c.i64(&i.N)
	c.bool(&i.HasInline)
	c.blob(&i.Inline, MaxInline, "bytes of content")
	c.u8(&i.Has)
	c.text(&i.Refused, MaxText)
	c.i64(&i.SumsFirst)
	c.sums(&i.Sums)
	c.text(&i.Served, MaxName)
	c.i64(&i.Age)
	c.text(&i.Verified, MaxName)
}

// Length returns the size in bytes of the OpenedItem in an Opened message. An Opened message without items has
// HeaderSize plus 8 bytes.
func (i *OpenedItem) Length() int {
	if e := i.Err; e != nil {
		return 1 + 1 + 4 + len(e.Code) + 4 + len(e.Message) + 4 + len(e.Fix)
	}
	const fixed = 1 + 8 + 8 + 4 + 8 + 4 + 8 + 8 + 8 + 1 + 4 + 1 + 4 + 8 + 4 + 4 + 8 + 4
	return fixed + len(i.ETag) + len(i.Version) + len(i.Inline) + len(i.Refused) + 8*len(i.Sums) + len(i.Served) +
		len(i.Verified)
}

// Length returns the size in bytes of the ListedItem in a Listed message.
func (i *ListedItem) Length() int { return 4 + 4 + 8 + 8 + len(i.Key) + len(i.ETag) }

// Type is TypeMove.
func (*Move) Type() Type { return TypeMove }
func (m *Move) code(c *coder) {
	c.u64(&m.Handle)
	m.Device.code(c)
	list(c, &m.Ranges, MaxRanges, 16, "ranges", func(r *Range) {
		c.i64(&r.Off)
		c.i64(&r.N)
	})
}

// Type is TypeSums.
func (*Sums) Type() Type { return TypeSums }
func (m *Sums) code(c *coder) {
	c.u64(&m.Handle)
	c.i64(&m.First)
	c.i64(&m.N)
}

// Type is TypeSumsReply.
func (*SumsReply) Type() Type { return TypeSumsReply }
func (m *SumsReply) code(c *coder) {
	c.i64(&m.First)
	c.sums(&m.Sums)
}

func (c *coder) reports(v *[]Report) {
	list(c, v, MaxReports, 29, "reports", func(r *Report) {
		c.bool(&r.Write)
		c.text(&r.Device, MaxName)
		c.text(&r.Route, MaxName)
		c.text(&r.Stage, MaxName)
		c.i64(&r.Bytes)
		c.span(&r.Time)
	})
}

// Type is TypeClose.
func (*Close) Type() Type { return TypeClose }
func (m *Close) code(c *coder) {
	list(c, &m.Handles, MaxItems, 8, "handles", c.u64)
	c.reports(&m.Reports)
}

// Type is TypeCreate.
func (*Create) Type() Type { return TypeCreate }
func (m *Create) code(c *coder) {
	c.text(&m.Bucket, MaxName)
	c.text(&m.Key, MaxName)
	c.i64(&m.Size)
	m.Device.code(c)
	c.u8(&m.Want)
	c.text(&m.ContentType, MaxName)
	list(c, &m.Metadata, MaxMetadata, 8, "metadata", func(p *Pair) {
		c.text(&p.Name, MaxName)
		c.text(&p.Value, MaxText)
	})
	c.text(&m.IfMatch, MaxName)
	c.text(&m.IfNoneMatch, MaxName)
	c.u64(&m.Source)
	c.bool(&m.Grows)
}

// Type is TypeCreated.
func (*Created) Type() Type { return TypeCreated }
func (m *Created) code(c *coder) {
	c.u64(&m.Handle)
	c.u8(&m.Has)
	c.text(&m.Refused, MaxText)
	c.text(&m.Path, MaxText)
	c.i64(&m.Copied)
}

// Type is TypeAddSums.
func (*AddSums) Type() Type { return TypeAddSums }
func (m *AddSums) code(c *coder) {
	c.u64(&m.Handle)
	c.i64(&m.First)
	c.sums(&m.Sums)
}

// Type is TypeCommit.
func (*Commit) Type() Type { return TypeCommit }
func (m *Commit) code(c *coder) {
	c.u64(&m.Handle)
	c.i64(&m.Size)
	c.u64(&m.CRC64)
	c.i64(&m.First)
	c.sums(&m.Sums)
	c.reports(&m.Reports)
}

// Type is TypeCommitted.
func (*Committed) Type() Type { return TypeCommitted }
func (m *Committed) code(c *coder) {
	c.text(&m.ETag, MaxName)
	c.text(&m.Version, MaxName)
	c.time(&m.Modified)
}

// Type is TypeAbort.
func (*Abort) Type() Type      { return TypeAbort }
func (m *Abort) code(c *coder) { c.u64(&m.Handle) }

// Type is TypeList.
func (*List) Type() Type { return TypeList }
func (m *List) code(c *coder) {
	c.text(&m.Bucket, MaxName)
	c.text(&m.Prefix, MaxName)
	c.text(&m.Delimiter, MaxName)
	c.text(&m.After, MaxName)
	c.u32(&m.Limit)
}

// Type is TypeListed.
func (*Listed) Type() Type { return TypeListed }
func (m *Listed) code(c *coder) {
	list(c, &m.Items, MaxItems, 24, "objects", func(i *ListedItem) {
		c.text(&i.Key, MaxName)
		c.text(&i.ETag, MaxName)
		c.i64(&i.Size)
		c.time(&i.Modified)
	})
	list(c, &m.Prefixes, MaxItems, 4, "prefixes", func(p *string) { c.text(p, MaxName) })
	c.bool(&m.Truncated)
	c.text(&m.Next, MaxName)
}

// Type is TypePing.
func (*Ping) Type() Type    { return TypePing }
func (*Ping) code(c *coder) {}

// Type is TypeAck.
func (*Ack) Type() Type    { return TypeAck }
func (*Ack) code(c *coder) {}

// Type is TypeError.
func (*Error) Type() Type { return TypeError }
func (m *Error) code(c *coder) {
	c.u8(&m.Kind)
	c.text(&m.Code, MaxName)
	c.text(&m.Message, MaxText)
	c.text(&m.Fix, MaxText)
}
