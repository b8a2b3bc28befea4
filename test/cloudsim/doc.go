// SPDX-License-Identifier: Apache-2.0

// Package cloudsim is what every simulated cloud has in common. The clouds
// themselves are its folders: servers on loopback that speak a cloud's own
// protocol, refuse what the cloud would refuse and keep state.
//
//   - [World] is the books: a ledger of resources that sees leaks, doubles and
//     deletions of what is somebody else's, a script of faults, and a log of
//     the calls.
//   - [RunSchedules] drives a provider through random schedules of calls,
//     crashes and faults and then reads the books.
//   - [CheckDoc] keeps a part of a page of documentation equal to what was
//     seen, such as the permissions that a provider needs.
//   - [Main] keeps tests on loopback.
package cloudsim
