;; Uses the handle of an earlier call, which was for another object. The call is made again in a fresh instance, which has none.
;; want: ok
;; logged: made an invalid call to len in outgoing: the handle is of an earlier call
;; calls: 2
(data (i32.const 0) "spec")
(global $kept (mut i32) (i32.const 0))
(func $bad
  (if (global.get $kept)
    (then (drop (call $len (global.get $kept) (i32.const 0) (i32.const 0))))
    (else (global.set $kept (call $get (i32.const 1) (i32.const 0) (i32.const 4))))))
