// SPDX-License-Identifier: Apache-2.0
// The routes of bytes: what each is called, its colour, and the places that bytes pass on it.

const places = {
  cufile_p2p: { text: 'disk to GPU, peer to peer', kind: 'storage', via: [] },
  cufile_nvfs: { text: 'disk to GPU by nvidia-fs', kind: 'storage', via: [] },
  cufile_compat: { text: 'libcufile through host memory', kind: 'both', via: ['Host memory'] },
  cufile_unknown: { text: 'libcufile, route not known', kind: 'other', via: ['not known'] },
  direct: { text: 'past the page cache (O_DIRECT)', kind: 'storage', via: ['Staging memory'] },
  direct_unproven: { text: 'O_DIRECT, not proven', kind: 'other', via: ['Staging memory'] },
  buffered: { text: 'through the page cache', kind: 'both', via: ['Page cache'] },
  buffered_unproven: { text: 'through the page cache, not proven', kind: 'other', via: ['Page cache'] },
  page_cache: { text: 'from the page cache', kind: 'memory', from: 'Page cache', via: [] },
  shared_memory: { text: 'read by another process', kind: 'memory', from: 'Shared memory', via: ['Staging memory'] },
  network: { text: 'over the network', kind: 'network', from: 'Store', via: ['Network'] },
  cache: { text: 'from the cache of this node, over the network', kind: 'storage', from: 'Cache', via: ['Network'] },
  peer: { text: 'from another node of the cluster', kind: 'both', from: 'Other node', via: ['This node'] },
  upstream: { text: 'from another S3 server', kind: 'memory', from: 'Upstream', via: ['This node'] },
};

/** Describes a route. An unknown route keeps its name. */
export const describe = (name) => places[name] ?? { text: name.replaceAll('_', ' '), kind: 'other', via: [] };

/** Returns a device's name for people. */
export function deviceName(id) {
  if (!id) return 'Client';
  if (id === 'host') return 'Host memory';
  if (id === 'network') return 'Client';
  return id.startsWith('cuda') ? `GPU ${id.split(':')[1] ?? ''}`.trim() : id;
}

/**
 * Returns the places that the bytes of a transfer pass, in order, from storage to the device for a read and the other
 * way for a write.
 */
export function journey(transfer, route) {
  const { from = 'Disk', via } = describe(route.route);
  const steps = [from, ...via, deviceName(route.device)];
  const unique = steps.filter((s, i) => s !== steps[i - 1]);
  return transfer.direction === 'write' ? unique.reverse() : unique;
}
