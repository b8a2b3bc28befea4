// SPDX-License-Identifier: Apache-2.0

// Package guestinfo has what guest and provider agree on in VMware's guest
// information, the variables of a VM that its guest reads and sets and that are
// entries of its extraConfig.
package guestinfo

// Address is where the guest tells its addresses, with commas, the one to reach
// it by first.
const Address = "guestinfo.outrigger.address"
