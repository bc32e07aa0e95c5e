// SPDX-License-Identifier: Apache-2.0

// Package exchange lets loads of several processes share the blocks of one file in memory. Storage then delivers each
// block once, past the page cache.
//
// The memory is a memfd, which has no name. Each load that has opened the memory announces its file descriptor by a
// lock on the loaded file, see [vfs.Interest]. The kernel frees the memory when the last process with it ends, even by
// kill -9.
//
// A block of the file has one slot of the memory: the slots are used in turn, so that later blocks take the places of
// earlier ones. The load that comes first fills a slot, and the others copy from it. A slot is reused when all loads
// are done with its block. A load that does not move on is waited for once. Others then leave its blocks where they are
// and read new ones in another way.
package exchange
