// SPDX-License-Identifier: Apache-2.0

// Package transfer is the engine: it moves runs of bytes from files into device
// memory, each by the fastest route open to it, with reading and copying
// overlapped, and reports which route every byte took.
//
// The flow of a byte: the planner cuts segments into chunks and decides, by
// what is in the page cache, how each is read; workers take chunks in turn from
// all running transfers, read into staging slots of their own, queue the copy
// to the device and go on with their other slot; a slot is used again when the
// mark behind its copy has been passed. Where the device's memory is
// addressable, bytes are read into place and no slot is used. Where there are
// several GPUs, each may have workers and slots of its own (lanes.go), and
// several may be served by one read (peers.go).
//
// Invariants:
//
//	T1  Each wanted byte of each segment is read once and delivered once; what
//	    is read between them goes nowhere.
//	T2  A transfer ends only when no copy of it is queued any more, whether it
//	    succeeded, failed or was cancelled.
//	T3  Staging of reads never exceeds Options.PoolSize, however many transfers
//	    run; that of writes in place is fixed and comes with the first one, and so
//	    are two slots for each connection that reads, or writes, over a network, at most 64 each way.
//	T4  A transfer succeeds only if every read was whole and no file changed.
//	T5  A transfer that verifies succeeds only if every block with a byte of a
//	    segment in it has its sum; each byte is summed before it is sent on, or
//	    by the device behind its copy, and then before it counts as delivered.
//	T6  A part that Ready has counted is not touched any more.
//	T7  A save that ends without an error has put a whole, durable file in place;
//	    one that fails before the file has its name leaves what was there. One to a
//	    sink has written every byte of it, and no more is promised.
//	T8  An upload that ends without an error was acknowledged whole by its server;
//	    one that fails takes its parts back, or says that it could not.
//	T9  What peers get is what the first device gets: a transfer ends, and a part
//	    counts as ready, only when every copy to every peer has been done.
package transfer
