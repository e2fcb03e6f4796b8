;; Replaces the parent of what it may write.
;; want: GuardError: manifest
;; writes: spec.selector
(data (i32.const 0) "spec")
(func $bad (drop (call $set_map (i32.const 1) (i32.const 0) (i32.const 4))))
