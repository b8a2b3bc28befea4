// SPDX-License-Identifier: Apache-2.0

// Package conformance proves that a provider keeps the contract of package
// provider.
//
// A provider's own test calls [Run]:
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, func(t *testing.T) conformance.Subject {
//			p, err := mycloud.New(config(t))
//			if err != nil {
//				t.Fatal(err)
//			}
//			return conformance.Subject{Provider: p, Reopen: func() provider.Provider { ... }}
//		})
//	}
//
// A program calls [Execute] and gets a [Result] for each check. [Check.Run]
// needs no more of a test than [T] has.
//
// Every check has instances, keys and owner tags of its own, so checks can
// share a cloud with each other and with anything else that lives there. What
// a check makes is written down and deleted when it ends, also when it fails;
// the check then fails if a list, or [Subject.Leaks], still shows something.
// Lists and look-ups may lag behind: the suite asks again until
// [Limits].Settle has passed.
//
// Checks of an optional capability that the provider lacks are skipped with a
// message that names the interface.
//
// [Checks] has all checks, each with the sentence of the contract that it proves.
// provider-check --list prints them.
package conformance
