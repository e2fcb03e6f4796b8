;; Removes what its manifest does not say.
;; want: GuardError: manifest
;; writes: metadata.labels
(data (i32.const 0) "spec")
(func $bad (drop (call $remove (i32.const 1) (i32.const 0) (i32.const 4))))
